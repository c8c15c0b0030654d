// Updates as bytes, for the tests of spools and versions.
#ifndef TESTS_SUPPORT_SAMPLE_UPDATE_H_
#define TESTS_SUPPORT_SAMPLE_UPDATE_H_

#include <string>
#include <vector>

#include "common/base/logging.h"
#include "common/tensor/part_file.h"
#include "coordinator/core/facts.h"
#include "tests/support/fault_file_system.h"

namespace diloco {

inline std::vector<float> SampleValues(int64_t elements, int seed) {
  std::vector<float> values(static_cast<size_t>(elements));
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) / 4294967296.0f;
  }
  return values;
}

inline std::string PartBytes(Codec codec, const std::vector<float>& values,
                             uint32_t fragment = 0) {
  FaultFileSystem fs;
  auto file = fs.OpenForWrite("part");
  DILOCO_CHECK(file.ok());
  PartHeader header;
  header.codec = codec;
  header.fragment = fragment;
  header.elements = static_cast<int64_t>(values.size());
  PartWriter writer(file->get(), header);
  for (size_t at = 0; at < values.size(); at += kFrameElements) {
    DILOCO_CHECK(writer
                     .Append(absl::MakeConstSpan(values).subspan(
                         at, static_cast<size_t>(kFrameElements)))
                     .ok());
  }
  DILOCO_CHECK(writer.Finish().ok());
  return *ReadFile(&fs, "part");
}

inline UpdateValue ValueOf(const std::string& bytes) {
  UpdateValue value;
  value.base_version = 3;
  value.bytes = bytes.size();
  value.digest = BlockDigest(bytes);
  value.tokens = 1000;
  value.steps = 10;
  value.loss = 3.5;
  return value;
}

}  // namespace diloco

#endif  // TESTS_SUPPORT_SAMPLE_UPDATE_H_
