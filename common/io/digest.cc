// SHA-256 by OpenSSL, and runs of whole blocks by Sha256Lanes where the CPU
// can.
#include "common/io/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/sha256_lanes.h"

namespace diloco {
namespace {

static_assert(kDigestRunBytes == kSha256Lanes * kDigestBlockBytes);
// With fewer blocks at hand the lanes are no faster than OpenSSL.
constexpr size_t kFewestLanes = 9;

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, ContextDeleter>;

// Fails only without memory or with a broken OpenSSL: nothing to report to.
void Start(EVP_MD_CTX* context) {
  static const EVP_MD* const kSha256 = EVP_sha256();
  DILOCO_CHECK(EVP_DigestInit_ex(context, kSha256, nullptr) == 1);
}

Context NewContext() {
  Context context(EVP_MD_CTX_new());
  DILOCO_CHECK(context != nullptr);
  Start(context.get());
  return context;
}

void Add(EVP_MD_CTX* context, absl::string_view bytes) {
  DILOCO_CHECK(EVP_DigestUpdate(context, bytes.data(), bytes.size()) == 1);
}

Digest End(EVP_MD_CTX* context) {
  Digest digest;
  DILOCO_CHECK(EVP_DigestFinal_ex(context, digest.bytes.data(), nullptr) == 1);
  return digest;
}

}  // namespace

std::string Digest::ToHex() const { return diloco::ToHex(ToBytes()); }

std::string Digest::Short() const { return ToHex().substr(0, 12); }

std::string Digest::ToBytes() const {
  return std::string(bytes.begin(), bytes.end());
}

absl::StatusOr<Digest> Digest::FromBytes(absl::string_view raw) {
  Digest digest;
  if (raw.size() != digest.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a digest has ", digest.bytes.size(), " bytes, not ", raw.size()));
  }
  std::memcpy(digest.bytes.data(), raw.data(), raw.size());
  return digest;
}

absl::StatusOr<Digest> Digest::FromHex(absl::string_view text) {
  // Checked first: the message must not carry a long foreign text.
  if (text.size() != 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("a digest has 64 hexadecimal digits, not ", text.size()));
  }
  ASSIGN_OR_RETURN(const std::string raw, diloco::FromHex(text));
  return FromBytes(raw);
}

Digest Sha256(absl::string_view bytes) {
  const Context context = NewContext();
  Add(context.get(), bytes);
  return End(context.get());
}

struct BlockDigester::Impl {
  Context open = NewContext();  // Of the block that is not full yet.
  uint64_t bytes = 0;
  std::vector<Digest> full;
};

BlockDigester::BlockDigester() : impl_(std::make_unique<Impl>()) {}
BlockDigester::~BlockDigester() = default;
BlockDigester::BlockDigester(BlockDigester&&) noexcept = default;
BlockDigester& BlockDigester::operator=(BlockDigester&&) noexcept = default;

void BlockDigester::Update(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t blocks =
        std::min(kSha256Lanes, bytes.size() / kDigestBlockBytes);
    if (blocks >= kFewestLanes && impl_->bytes % kDigestBlockBytes == 0 &&
        HasSha256Lanes()) {
      const auto digests = Sha256Lanes(bytes.data(), kDigestBlockBytes, blocks);
      impl_->full.insert(impl_->full.end(), digests.begin(),
                         digests.begin() + blocks);
      impl_->bytes += blocks * kDigestBlockBytes;
      bytes.remove_prefix(blocks * kDigestBlockBytes);
      continue;
    }
    const uint64_t room = kDigestBlockBytes - impl_->bytes % kDigestBlockBytes;
    const absl::string_view piece = bytes.substr(0, room);
    Add(impl_->open.get(), piece);
    impl_->bytes += piece.size();
    bytes.remove_prefix(piece.size());
    if (impl_->bytes % kDigestBlockBytes == 0) {
      impl_->full.push_back(End(impl_->open.get()));
      Start(impl_->open.get());
    }
  }
}

uint64_t BlockDigester::bytes() const { return impl_->bytes; }

std::vector<Digest> BlockDigester::Blocks() const {
  std::vector<Digest> blocks = impl_->full;
  if (impl_->bytes % kDigestBlockBytes != 0) {
    const Context copy = NewContext();
    DILOCO_CHECK(EVP_MD_CTX_copy_ex(copy.get(), impl_->open.get()) == 1);
    blocks.push_back(End(copy.get()));
  }
  return blocks;
}

Digest BlockDigester::Finish() const { return DigestOfBlocks(Blocks()); }

Digest BlockDigest(absl::string_view bytes) {
  BlockDigester digester;
  digester.Update(bytes);
  return digester.Finish();
}

Digest DigestOfBlocks(absl::Span<const Digest> blocks) {
  const Context context = NewContext();
  for (const Digest& block : blocks) {
    Add(context.get(),
        absl::string_view(reinterpret_cast<const char*>(block.bytes.data()),
                          block.bytes.size()));
  }
  return End(context.get());
}

absl::StatusOr<Digest> BlockDigestOfFile(const ReadableFile& file) {
  ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  BlockDigester digester;
  std::string buffer(std::min(size, kDigestRunBytes), '\0');
  while (digester.bytes() < size) {
    const size_t n = std::min(size - digester.bytes(), kDigestRunBytes);
    RETURN_IF_ERROR(
        file.ReadAt(digester.bytes(), absl::MakeSpan(&buffer[0], n)));
    digester.Update(absl::string_view(buffer.data(), n));
  }
  return digester.Finish();
}

}  // namespace diloco
