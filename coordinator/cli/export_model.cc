#include "coordinator/cli/export_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/model/fragments.h"
#include "common/model/hf_directory.h"
#include "common/rpc/message_codec.h"
#include "common/tensor/part_file.h"

namespace diloco {
namespace {

std::string FileText(uint32_t fragment, const v1::FileRef& file) {
  return absl::StrCat(file.kind() == v1::FILE_KIND_IMAGE ? "image" : "change",
                      " of fragment ", fragment, " version ", file.version());
}

// Sets `values` from an image, or adds a change to them.
absl::Status ApplyPart(const PartReader& part, bool add,
                       absl::Span<float> values) {
  if (part.header().first_element != 0 ||
      part.header().elements != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("covers elements ", part.header().first_element, " to ",
                     part.header().first_element + part.header().elements,
                     ", expected 0 to ", values.size()));
  }
  std::vector<float> frame;
  for (int64_t index = 0; index < part.frames(); ++index) {
    const int64_t elements = part.FrameElements(index);
    absl::Span<float> target = values.subspan(index * kFrameElements, elements);
    if (!add) {
      RETURN_IF_ERROR(part.ReadFrame(index, target));
      continue;
    }
    frame.resize(elements);
    RETURN_IF_ERROR(part.ReadFrame(index, absl::MakeSpan(frame)));
    for (int64_t i = 0; i < elements; ++i) target[i] += frame[i];
  }
  return absl::OkStatus();
}

absl::Status ApplyFile(uint32_t fragment, const v1::FileRef& file,
                       const FetchFile& fetch, absl::Span<float> values) {
  ASSIGN_OR_RETURN(const Digest digest, DecodeDigest("digest", file.digest()));
  ASSIGN_OR_RETURN(const Digest result,
                   DecodeDigest("result_digest", file.result_digest()));
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> content,
                   fetch(digest, file.bytes()));
  ASSIGN_OR_RETURN(const PartReader part,
                   PartReader::Open(std::move(content), digest.Short()));
  if (part.header().fragment != fragment) {
    return absl::InvalidArgumentError(
        absl::StrCat("holds fragment ", part.header().fragment));
  }
  RETURN_IF_ERROR(ApplyPart(part, file.kind() == v1::FILE_KIND_UPDATE, values));
  const Digest reached = DigestOfValues(values);
  if (reached != result) {
    return absl::DataLossError(absl::StrCat(
        "gives digest ", reached.Short(), ", but ", result.Short(),
        " was published; export again, and check memory and disk of this "
        "machine if it happens twice"));
  }
  return absl::OkStatus();
}

// What does not go together gives another layout digest.
Fragmentation FragmentsOf(const v1::ExportDescription& description) {
  Fragmentation fragments;
  fragments.count =
      static_cast<uint32_t>(std::max(1, description.fragments_size()));
  fragments.names.assign(description.fragment_names().begin(),
                         description.fragment_names().end());
  for (const FragmentPattern pattern :
       {FragmentPattern::kSequential, FragmentPattern::kStrided,
        FragmentPattern::kBalanced, FragmentPattern::kNames}) {
    if (description.pattern() == FragmentPatternName(pattern)) {
      fragments.pattern = pattern;
    }
  }
  return fragments;
}

}  // namespace

absl::StatusOr<ExportedModel> BuildModel(
    const v1::ExportDescription& description, const FetchFile& fetch) {
  ExportedModel model;
  ASSIGN_OR_RETURN(model.config, ParseHfConfig("the coordinator's config.json",
                                               description.model_json()));
  ASSIGN_OR_RETURN(model.layout,
                   ModelLayout(model.config, FragmentsOf(description)));
  ASSIGN_OR_RETURN(const Digest layout_digest,
                   DecodeDigest("layout_digest", description.layout_digest()));
  if (model.layout.ComputeDigest() != layout_digest ||
      description.fragments_size() == 0) {
    return absl::InvalidArgumentError(
        "the coordinator lays the model out otherwise than this dilococtl; "
        "use the dilococtl of its build (dilococtl version)");
  }
  model.theta.assign(model.layout.elements, 0.0f);
  for (uint32_t i = 0; i < model.layout.fragments.size(); ++i) {
    const v1::FragmentFiles& fragment =
        description.fragments(static_cast<int>(i));
    if (fragment.fragment() != i || fragment.files_size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the coordinator describes fragment ",
                       fragment.fragment(), " by ", fragment.files_size(),
                       " files; expected fragment ", i, " by one at least"));
    }
    const FragmentSpec& spec = model.layout.fragments[fragment.fragment()];
    absl::Span<float> values =
        absl::MakeSpan(model.theta).subspan(spec.first, spec.elements);
    for (const v1::FileRef& file : fragment.files()) {
      RETURN_IF_ERROR(
          WithContext(ApplyFile(fragment.fragment(), file, fetch, values),
                      FileText(fragment.fragment(), file)));
    }
  }
  return model;
}

}  // namespace diloco
