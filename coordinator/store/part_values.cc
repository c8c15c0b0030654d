#include "coordinator/store/part_values.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/part_file.h"

namespace diloco {

absl::Status ReadPartValues(FileSystem* fs, const std::string& path,
                            const FileRef& expected, uint32_t fragment,
                            absl::Span<float> values) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const Digest digest, BlockDigestOfFile(*file));
  if (digest != expected.digest) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has digest ", digest.Short(), ", recorded is ",
                     expected.digest.Short()));
  }
  ASSIGN_OR_RETURN(const PartReader reader,
                   PartReader::Open(std::move(file), path));
  const PartHeader& header = reader.header();
  if (header.codec != Codec::kFp32 || header.fragment != fragment ||
      header.elements != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " holds ", header.elements, " elements of fragment ",
        header.fragment, " as ", CodecName(header.codec), ", expected ",
        values.size(), " of fragment ", fragment, " as fp32"));
  }
  for (int64_t i = 0; i < reader.frames(); ++i) {
    RETURN_IF_ERROR(reader.ReadFrame(
        i, values.subspan(static_cast<size_t>(i * kFrameElements),
                          static_cast<size_t>(reader.FrameElements(i)))));
  }
  return absl::OkStatus();
}

}  // namespace diloco
