// Checks an update while its bytes come in. Frames are gathered whole and then
// checked, so that what is found, and the sums, do not depend on the pieces in
// which the bytes arrive.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/tensor/layout.h"
#include "common/tensor/part_file.h"
#include "common/tensor/scan.h"

namespace diloco {

struct PartScreen::Impl {
  explicit Impl(Expect e) : expect(e) {}

  // The size of the piece that is looked at next as a whole.
  uint64_t Needed() const;
  absl::Status TakePiece(absl::string_view piece);
  absl::Status TakeHeader(absl::string_view piece);
  absl::Status TakeFrame(absl::string_view piece);
  size_t FrameElements() const;  // Of the next frame.
  // For messages: an element of the next frame.
  std::string Where(size_t at) const;
  absl::Status CheckScales(absl::Span<const char> frame) const;
  // Why a frame with a value that is not finite or too large is refused.
  absl::Status DescribeBad(absl::Span<const char> frame) const;

  const Expect expect;
  bool header_seen = false;
  PartPrefix prefix;
  size_t next_frame = 0;
  std::string pending;  // The beginning of the next piece.
  uint64_t taken = 0;   // Bytes in pieces that were looked at.
  absl::Status status;

  float max_abs = 0;
  double sum_squares = 0;
};

uint64_t PartScreen::Impl::Needed() const {
  if (!header_seen) return kPartHeaderBytes;
  // The table is parsed together with the header, which stays in `pending`.
  if (prefix.frames.empty()) return PartPrefixBytes(expect.elements);
  return next_frame < prefix.frames.size() ? prefix.frames[next_frame].bytes
                                           : 0;
}

absl::Status PartScreen::Impl::TakeHeader(absl::string_view piece) {
  ASSIGN_OR_RETURN(const PartHeader header, ParsePartHeader(piece));
  const auto differs = [](absl::string_view field, auto got, auto wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("part file: ", field, " is ", got, ", expected ", wanted));
  };
  if (header.codec != expect.codec) {
    return differs("codec", CodecName(header.codec), CodecName(expect.codec));
  }
  if (header.fragment != expect.fragment) {
    return differs("fragment", header.fragment, expect.fragment);
  }
  if (header.first_element != 0) {
    return differs("first_element", header.first_element, 0);
  }
  if (header.elements != expect.elements) {
    return differs("elements", header.elements, expect.elements);
  }
  header_seen = true;
  return absl::OkStatus();
}

size_t PartScreen::Impl::FrameElements() const {
  const int64_t first = static_cast<int64_t>(next_frame) * kFrameElements;
  return static_cast<size_t>(std::min(kFrameElements, expect.elements - first));
}

std::string PartScreen::Impl::Where(size_t at) const {
  const int64_t element = static_cast<int64_t>(next_frame) * kFrameElements +
                          static_cast<int64_t>(at);
  const std::string where =
      absl::StrCat("element ", element, " of fragment ", expect.fragment);
  if (expect.layout == nullptr) return where;
  const FragmentSpec& spec = expect.layout->fragments[expect.fragment];
  return absl::StrCat(expect.layout->Describe(spec.first + element), " (",
                      where, ")");
}

absl::Status PartScreen::Impl::CheckScales(absl::Span<const char> frame) const {
  const std::optional<BadScale> bad =
      FindBadScale(expect.codec, frame, FrameElements());
  if (!bad.has_value()) return absl::OkStatus();
  const std::string where =
      expect.codec == Codec::kInt8Buckets
          ? absl::StrCat("mean ", bad->index, " of frame ", next_frame,
                         " of fragment ", expect.fragment)
          : absl::StrCat("the scale of the block at ", Where(bad->index));
  return absl::InvalidArgumentError(
      absl::StrCat("part file: ", where, " is ", bad->scale,
                   "; an update may have finite values of magnitude up to ",
                   expect.max_magnitude, ", and scales as its codec ",
                   CodecName(expect.codec), " writes them"));
}

absl::Status PartScreen::Impl::DescribeBad(absl::Span<const char> frame) const {
  std::vector<float> values(FrameElements());
  Decode(expect.codec, frame, absl::MakeSpan(values));
  const int64_t at = FindBeyond(values, expect.max_magnitude);
  DILOCO_CHECK(at >= 0);
  return absl::InvalidArgumentError(
      absl::StrCat("part file: ", Where(static_cast<size_t>(at)), " is ",
                   values[static_cast<size_t>(at)],
                   "; an update may have finite values of magnitude up to ",
                   expect.max_magnitude));
}

absl::Status PartScreen::Impl::TakeFrame(absl::string_view piece) {
  const FrameEntry& entry = prefix.frames[next_frame];
  const uint32_t crc = Crc32c(piece);
  if (crc != entry.crc) {
    return absl::DataLossError(absl::StrCat(
        "part file: frame ", next_frame, " (", entry.bytes, " bytes at offset ",
        entry.offset, ") has checksum ", absl::Hex(crc), ", expected ",
        absl::Hex(entry.crc), ": send it again"));
  }
  const absl::Span<const char> frame(piece.data(), piece.size());
  RETURN_IF_ERROR(CheckScales(frame));
  ValueScan frame_scan;
  frame_scan.AddEncoded(expect.codec, frame, FrameElements());
  // Also true for NaN.
  if (!(frame_scan.max_abs() <= expect.max_magnitude)) {
    return DescribeBad(frame);
  }
  max_abs = std::max(max_abs, frame_scan.max_abs());
  sum_squares += frame_scan.sum_squares();
  ++next_frame;
  return absl::OkStatus();
}

absl::Status PartScreen::Impl::TakePiece(absl::string_view piece) {
  if (!header_seen) return TakeHeader(piece);
  if (prefix.frames.empty()) {
    ASSIGN_OR_RETURN(prefix, ParsePartPrefix(piece));
    return absl::OkStatus();
  }
  return TakeFrame(piece);
}

PartScreen::PartScreen(Expect expect) : impl_(std::make_unique<Impl>(expect)) {}
PartScreen::~PartScreen() = default;

absl::Status PartScreen::Feed(absl::string_view bytes) {
  Impl& s = *impl_;
  while (s.status.ok() && !bytes.empty()) {
    const uint64_t needed = s.Needed();
    if (needed == 0) {
      s.status = absl::InvalidArgumentError(
          absl::StrCat("part file: ", bytes.size(), " bytes behind its end at ",
                       PartFileBytes(s.expect.codec, s.expect.elements)));
      break;
    }
    absl::string_view piece = bytes.substr(0, needed - s.pending.size());
    bytes.remove_prefix(piece.size());
    if (!s.pending.empty() || piece.size() < needed) {
      absl::StrAppend(&s.pending, piece);
      if (s.pending.size() < needed) break;
      piece = s.pending;
    }
    const bool header_only = !s.header_seen;
    s.status = s.TakePiece(piece);
    if (header_only) {
      if (s.pending.empty()) s.pending.assign(piece.data(), piece.size());
    } else {
      s.taken += piece.size();
      s.pending.clear();
    }
  }
  return s.status;
}

absl::Status PartScreen::Finish() const {
  RETURN_IF_ERROR(impl_->status);
  const uint64_t total =
      PartFileBytes(impl_->expect.codec, impl_->expect.elements);
  const uint64_t present = impl_->taken + impl_->pending.size();
  if (present < total) {
    return absl::FailedPreconditionError(absl::StrCat(
        "part file: ", total - present, " of ", total, " bytes are missing"));
  }
  return absl::OkStatus();
}

float PartScreen::max_abs() const { return impl_->max_abs; }
double PartScreen::sum_squares() const { return impl_->sum_squares; }

}  // namespace diloco
