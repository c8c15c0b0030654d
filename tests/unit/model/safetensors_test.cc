// safetensors reader and writer: acceptance cases C3.1 to C3.6.
#include "common/model/safetensors.h"

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

std::string Le64(uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i)
    out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

std::string File(const std::string& header, size_t data_bytes) {
  return Le64(header.size()) + header + std::string(data_bytes, '\0');
}

void Write(FileSystem* fs, const std::string& path, const std::string& bytes) {
  auto file = fs->OpenForWrite(path);
  REQUIRE(file.ok());
  REQUIRE((*file)->Truncate(0).ok());
  REQUIRE((*file)->WriteAt(0, bytes).ok());
}

absl::Status Open(const std::string& bytes) {
  FaultFileSystem fs;
  Write(&fs, "m.safetensors", bytes);
  return SafetensorsReader::Open(&fs, "m.safetensors").status();
}

struct Bad {
  std::string what;
  std::string bytes;
  std::vector<std::string> words;
};

void CheckRefused(const std::vector<Bad>& cases) {
  for (const Bad& c : cases) {
    INFO(c.what);
    const absl::Status status = Open(c.bytes);
    CAPTURE(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "m.safetensors"));
    for (const std::string& word : c.words) {
      CAPTURE(word);
      CHECK(absl::StrContains(status.message(), word));
    }
  }
}

TEST_CASE(
    "C3.1 a header length beyond the file is refused without a large "
    "allocation") {
  CheckRefused({
      {"2^64-1",
       Le64(~0ull),
       {"header length 18446744073709551615", "file has 8 bytes"}},
      {"2^63", Le64(1ull << 63), {"header length 9223372036854775808"}},
      {"100, then 10 bytes",
       Le64(100) + std::string(10, '{'),
       {"header length 100, file has 18 bytes"}},
      {"no bytes", "", {"0 bytes"}},
      {"1 byte", "x", {"1 bytes"}},
      {"7 bytes", "xxxxxxx", {"7 bytes"}},
      {"8 bytes",
       "\x05" + std::string(7, '\0'),
       {"header length 5, file has 8 bytes"}},
      {"length 0", Le64(0), {"begin with '{'"}},
  });
  REQUIRE(Open(Le64(2) + "{}").ok());
}

std::string F32Entry(const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"a":{"dtype":"F32","shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}}");
}

TEST_CASE("C3.2 shape and byte range must agree") {
  CheckRefused({
      {"too many bytes",
       File(F32Entry("[32,8]", "[0,65536]"), 1024),
       {"\"a\"", "[32,8]", "F32", "1024", "65536"}},
      {"too few bytes",
       File(F32Entry("[32,8]", "[0,1020]"), 1024),
       {"[32,8]", "F32", "1024", "1020"}},
      {"reversed", File(F32Entry("[32,8]", "[4,0]"), 1024), {"[4,0]", "1024"}},
      {"one number", File(F32Entry("[32,8]", "[0]"), 1024), {"1 numbers"}},
      {"three numbers",
       File(F32Entry("[32,8]", "[0,4,8]"), 1024),
       {"3 numbers"}},
      {"negative", File(F32Entry("[32,8]", "[-4,1020]"), 1024), {"-4"}},
      {"fraction", File(F32Entry("[32,8]", "[0,1024.0]"), 1024), {"1024.0"}},
      {"exponent", File(F32Entry("[32,8]", "[0,1.024e3]"), 1024), {"1.024e3"}},
      {"text",
       File(F32Entry("[32,8]", R"(["0","1024"])"), 1024),
       {"data_offsets"}},
      {"no offsets",
       File(R"({"a":{"dtype":"F32","shape":[1]}})", 4),
       {"data_offsets", "missing"}},
      {"null", File(F32Entry("[32,8]", "null"), 1024), {"null"}},
      {"nested",
       File(F32Entry("[32,8]", "[[0],1024]"), 1024),
       {"data_offsets"}},
  });
}

std::string Entry(const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return absl::StrCat(R"({"a":{"dtype":)", dtype, R"(,"shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}}");
}

TEST_CASE(
    "C3.3 a shape whose product wraps is an overflow; empty and scalar are "
    "legal") {
  std::string deep = "[2";
  for (int i = 1; i < 300; ++i) deep += ",2";
  deep += "]";
  CheckRefused({
      {"2^64 at 0",
       File(Entry("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0),
       {"overflow", "[4294967296,4294967296]"}},
      {"2^64 far out",
       File(Entry("\"U8\"", "[4294967296,4294967296]",
                  "[1000000000000,1000000000000]"),
            0),
       {"overflow"}},
      {"bits overflow",
       File(Entry("\"F64\"", "[4611686018427387904]", "[0,0]"), 0),
       {"overflow"}},
      {"negative",
       File(Entry("\"U8\"", "[-1,4]", "[0,4]"), 4),
       {"shape", "-1"}},
      {"fraction", File(Entry("\"U8\"", "[1.5]", "[0,1]"), 1), {"1.5"}},
      {"300 dimensions",
       File(Entry("\"U8\"", deep, "[0,1]"), 1),
       {"shape has more than 64"}},
      {"larger than 64 bits",
       File(Entry("\"U8\"", "[18446744073709551616]", "[0,1]"), 1),
       {"shape"}},
  });
  CHECK(Open(File(Entry("\"F32\"", "[0,5]", "[0,0]"), 0)).ok());
  CHECK(Open(File(Entry("\"F32\"", "[]", "[0,4]"), 4)).ok());
  CHECK(Open(File(Entry("\"F4\"", "[2]", "[0,1]"), 1)).ok());
}

TEST_CASE("C3.4 unknown dtypes are refused by name, wrapping offsets too") {
  CheckRefused({
      {"F33", File(Entry("\"F33\"", "[1]", "[0,4]"), 4), {"F33"}},
      {"f32", File(Entry("\"f32\"", "[1]", "[0,4]"), 4), {"f32"}},
      {"blank", File(Entry("\"\"", "[1]", "[0,4]"), 4), {"unknown dtype \"\""}},
      {"number", File(Entry("17", "[1]", "[0,4]"), 4), {"dtype", "17"}},
      {"null", File(Entry("null", "[1]", "[0,4]"), 4), {"dtype", "null"}},
      {"wrapping",
       File(
           Entry("\"F32\"", "[1]", "[9223372036854775808,9223372036854775812]"),
           4),
       {"\"a\"", "9223372036854775808"}},
      {"half a byte",
       File(Entry("\"F4\"", "[1]", "[0,0]"), 0),
       {"whole number of bytes"}},
  });
}

TEST_CASE("C3.4 a legal dtype that is not trained with says which are") {
  FaultFileSystem fs;
  Write(&fs, "m", File(Entry("\"F8_E4M3\"", "[4]", "[0,4]"), 4));
  const auto reader = SafetensorsReader::Open(&fs, "m");
  REQUIRE(reader.ok());
  std::vector<float> out(4);
  const absl::Status status =
      reader->ReadFloats(reader->tensors()[0], absl::MakeSpan(out));
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), "F8_E4M3"));
  CHECK(absl::StrContains(status.message(), "F32, F16 or BF16"));
}

TEST_CASE("C3.5 duplicates, gaps, overlaps and extra bytes are refused") {
  const std::string a =
      R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string b44 =
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string b8 =
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]})";
  CheckRefused({
      {"same key twice",
       File("{" + a + "," + a + "}", 4),
       {"duplicate key \"a\""}},
      {"same field twice",
       File(
           R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
           4),
       {"duplicate key \"dtype\""}},
      {"overlap",
       File("{" + a + "," + b44 + "}", 4),
       {"\"b\"", "byte 0", "ends at 4"}},
      {"gap",
       File("{" + a + "," + b8 + "}", 12),
       {"\"b\"", "byte 8", "ends at 4"}},
      {"extra byte", File("{" + a + "}", 5), {"4 bytes", "5"}},
      {"metadata number",
       File(R"({"__metadata__":{"x":1},)" + a + "}", 4),
       {"__metadata__", "\"x\""}},
      {"metadata nested",
       File(R"({"__metadata__":{"x":{}},)" + a + "}", 4),
       {"__metadata__"}},
      {"metadata twice",
       File(R"({"__metadata__":{},"__metadata__":{},)" + a + "}", 4),
       {"duplicate"}},
      {"unknown field",
       File(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})",
            4),
       {"\"x\""}},
      {"list header", File("[1]", 0), {"begin with '{'"}},
      {"space before the brace", File(" {}", 0), {"begin with '{'"}},
      {"text after the object", File("{} x", 0), {"JSON"}},
      {"zero byte hides the rest",
       File(std::string("{}\0{", 4), 0),
       {"zero byte"}},
      {"not UTF-8", File("{\"\xff\":{}}", 0), {"UTF-8"}},
      {"cut JSON", File("{\"a\":", 0), {"JSON"}},
      {"deep JSON",
       File("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') +
                "}",
            0),
       {"expected an object, got a list"}},
      {"deep objects",
       File(
           [] {
             std::string s;
             for (int i = 0; i < 100000; ++i) s += "{\"a\":";
             return s;
           }(),
           0),
       {}},
  });
}

std::vector<float> Ramp(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = 0.5f * static_cast<float>(i) - 3;
  return values;
}

// Three tensors of 3, 0 and 600000 values.
std::vector<float> WriteThree(FileSystem* fs, const std::string& path) {
  const std::vector<float> values = Ramp(600000);
  const absl::Span<const float> all(values);
  REQUIRE(WriteSafetensors(fs, path,
                           {{"z", {3}, all.first(3)},
                            {"empty", {0, 5}, all.first(0)},
                            {"m", {600, 1000}, all}})
              .ok());
  return values;
}

TEST_CASE("what is written is read back, sorted, padded and aligned") {
  FaultFileSystem fs;
  const std::vector<float> values = WriteThree(&fs, "out");
  const auto reader = SafetensorsReader::Open(&fs, "out");
  REQUIRE(reader.ok());
  REQUIRE(reader->tensors().size() == 3);
  CHECK(reader->tensors()[0].name == "empty");
  CHECK(reader->tensors()[1].name == "m");
  CHECK(reader->tensors()[2].name == "z");
  CHECK(reader->metadata().at("format") == "pt");
  std::vector<float> out(values.size());
  REQUIRE(reader->ReadFloats(*reader->Find("m"), absl::MakeSpan(out)).ok());
  CHECK(out == values);
  CHECK(reader->Find("nope") == nullptr);
  const std::string bytes = *ReadFile(&fs, "out");
  CHECK(static_cast<uint8_t>(bytes[0]) % 8 == 0);
  REQUIRE(WriteSafetensors(&fs, "again",
                           {{"m", {600, 1000}, values},
                            {"empty", {0, 5}, {}},
                            {"z", {3}, absl::MakeConstSpan(values).first(3)}})
              .ok());
  CHECK(*ReadFile(&fs, "again") == bytes);
}

TEST_CASE("C3.6 a truncated file is refused when opened, with both sizes") {
  FaultFileSystem fs;
  WriteThree(&fs, "out");
  const std::string bytes = *ReadFile(&fs, "out");
  for (size_t cut : {1, 4096}) {
    const absl::Status status = Open(bytes.substr(0, bytes.size() - cut));
    CAPTURE(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "need 2400012 bytes"));
    CHECK(absl::StrContains(status.message(),
                            absl::StrCat("has ", 2400012 - cut)));
  }
}

TEST_CASE(
    "C3.6 a file cut after it was opened is an error, never zeros or a "
    "signal") {
  char name[] = "/tmp/diloco-safetensors-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  FileSystem* fs = FileSystem::Posix();
  const std::string path = absl::StrCat(name, "/m.safetensors");
  WriteThree(fs, path);
  const auto reader = SafetensorsReader::Open(fs, path);
  REQUIRE(reader.ok());
  REQUIRE((*fs->OpenForWrite(path))->Truncate(4096).ok());
  std::vector<float> out(600000, 7.0f);
  const absl::Status status =
      reader->ReadFloats(*reader->Find("m"), absl::MakeSpan(out));
  CAPTURE(status.ToString());
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(status.message(), path));
  REQUIRE(fs->Remove(path).ok());
  REQUIRE(fs->Remove(name).ok());
}

TEST_CASE("every cut and every flipped header bit is refused or harmless") {
  FaultFileSystem fs;
  const std::vector<float> values = Ramp(6);
  REQUIRE(WriteSafetensors(&fs, "f",
                           {{"a", {2, 2}, absl::MakeConstSpan(values).first(4)},
                            {"b", {2}, absl::MakeConstSpan(values).first(2)}})
              .ok());
  const std::string bytes = *ReadFile(&fs, "f");
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    CAPTURE(cut);
    REQUIRE_FALSE(Open(bytes.substr(0, cut)).ok());
  }
  for (size_t bit = 0; bit < 8 * (bytes.size() - 24); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    Open(flipped).IgnoreError();  // Any verdict; no crash.
  }
}

TEST_CASE("a failed write or sync is reported") {
  for (const bool sync : {false, true}) {
    FaultFileSystem fs;
    if (sync) {
      fs.FailSync(1);
    } else {
      fs.FailWrite(2);
    }
    const std::vector<float> values = Ramp(4);
    CHECK(WriteSafetensors(&fs, "f", {{"a", {4}, values}}).code() ==
          absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("the reference files get the verdicts of expect.json") {
  const char* root = std::getenv("DILOCO_FIXTURES");
  if (root == nullptr) {
    WARN("skipped: DILOCO_FIXTURES is not set");
    return;
  }
  FileSystem* fs = FileSystem::Posix();
  const std::string dir = absl::StrCat(root, "/safetensors/");
  const auto text = ReadFile(fs, dir + "expect.json");
  REQUIRE(text.ok());
  const auto expect = nlohmann::json::parse(*text);
  int files = 0;
  for (const auto& item : expect["files"]) {
    const std::string file = item["file"];
    CAPTURE(file);
    const auto reader = SafetensorsReader::Open(fs, dir + file);
    CAPTURE(reader.status().ToString());
    REQUIRE(reader.ok() == (item["expect"] == "accept"));
    ++files;
    if (!reader.ok() || !item.contains("tensors")) continue;
    REQUIRE(reader->tensors().size() == item["tensors"].size());
    for (const auto& [name, tensor] : item["tensors"].items()) {
      CAPTURE(name);
      const SafetensorsEntry* entry = reader->Find(name);
      REQUIRE(entry != nullptr);
      CHECK(entry->dtype == tensor["dtype"]);
      CHECK(nlohmann::json(entry->shape) == tensor["shape"]);
      std::string bytes(entry->end - entry->begin, '\0');
      REQUIRE(reader->ReadBytes(*entry, absl::MakeSpan(bytes)).ok());
      CHECK(ToHex(bytes) == tensor["data_hex"]);
    }
    if (item.contains("metadata")) {
      CHECK(nlohmann::json(reader->metadata()) == item["metadata"]);
    }
  }
  CHECK(files >= 32);
}

}  // namespace
}  // namespace diloco
