#include "coordinator/runtime/fold_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/aggregate/fold.h"
#include "coordinator/aggregate/reproduced.h"

namespace diloco {
namespace {

// The newest one, and the one before it should that be damaged.
constexpr int kImagesForStart = 2;
// Refused updates that stay on disk longer than their round's others, for each
// fragment.
constexpr size_t kKeptEvidence = 4;

}  // namespace

FoldEngine::FoldEngine(Options options)
    : options_(options),
      theta_(static_cast<size_t>(options.layout->elements)),
      momentum_(static_cast<size_t>(options.layout->elements)),
      fragments_(options.layout->fragments.size()) {}

absl::Span<float> FoldEngine::RangeOf(uint32_t index,
                                      std::vector<float>& flat) const {
  const FragmentSpec& spec = options_.layout->fragments[index];
  return absl::MakeSpan(flat).subspan(static_cast<size_t>(spec.first),
                                      static_cast<size_t>(spec.elements));
}

absl::StatusOr<RunCreated> FoldEngine::CreateRun(
    const std::function<absl::Status(absl::Span<float>)>& initial) {
  RETURN_IF_ERROR(initial(absl::MakeSpan(theta_)));
  std::fill(momentum_.begin(), momentum_.end(), 0.0f);
  RunCreated created;
  for (uint32_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    const absl::Span<float> theta = RangeOf(f, theta_);
    ASSIGN_OR_RETURN(VersionStore::Pending pending,
                     options_.versions->Create(f, 0, /*with_blob=*/false,
                                               /*with_image=*/true));
    RunCreated::Fragment files;
    ASSIGN_OR_RETURN(files.theta_image.digest,
                     WriteImage(pending.theta_image.get(), f, theta));
    ASSIGN_OR_RETURN(
        files.momentum_image.digest,
        WriteImage(pending.momentum_image.get(), f, RangeOf(f, momentum_)));
    files.theta_image.bytes = files.momentum_image.bytes =
        PartFileBytes(Codec::kFp32, static_cast<int64_t>(theta.size()));
    files.tensors = MergeTensorsOf(*options_.layout, f);
    files.digest = DigestOfValues(theta);
    RETURN_IF_ERROR(options_.versions->Commit(std::move(pending)));
    created.fragments.push_back(files);
    fragment.version = 0;
    fragment.valid = true;
  }
  return created;
}

void FoldEngine::Learn(const Fact& fact) {
  if (const auto* created = std::get_if<RunCreated>(&fact)) {
    for (uint32_t f = 0;
         f < std::min(created->fragments.size(), fragments_.size()); ++f) {
      fragments_[f].images.push_back(0);
    }
  } else if (const auto* committed = std::get_if<UpdateCommitted>(&fact)) {
    fragments_[committed->fragment]
        .max_abs[{committed->round, committed->worker}] = committed->max_abs;
  } else if (const auto* refused = std::get_if<UpdateRefused>(&fact)) {
    const absl::Status kept = options_.spools->Quarantine(
        refused->fragment, refused->round, refused->worker, refused->digest);
    if (!kept.ok()) {
      DILOCO_LOG(WARNING) << "a refused update is not kept worker="
                          << refused->worker << " error=\"" << kept.message()
                          << "\"";
    }
  } else if (const auto* closed = std::get_if<RoundClosed>(&fact)) {
    if (!closed->members.empty()) {
      fragments_[closed->fragment].closed = *closed;
    }
  } else if (const auto* lineage = std::get_if<LineageStarted>(&fact)) {
    for (uint32_t f = 0; f < fragments_.size(); ++f) {
      Fragment& fragment = fragments_[f];
      const uint64_t version = lineage->fragments[f].version;
      fragment.closed.reset();
      fragment.history.erase(fragment.history.upper_bound(version),
                             fragment.history.end());
      std::erase_if(fragment.images,
                    [version](uint64_t image) { return image >= version; });
      fragment.images.push_back(version);
    }
  } else if (const auto* published = std::get_if<VersionPublished>(&fact)) {
    Fragment& fragment = fragments_[published->fragment];
    DILOCO_CHECK(fragment.closed.has_value());
    fragment.history[published->version] = {*std::move(fragment.closed),
                                            *published};
    fragment.closed.reset();
    if (published->theta_image.bytes > 0) {
      fragment.images.push_back(published->version);
    }
  }
}

absl::Status FoldEngine::Rebuild(uint32_t index, uint64_t version) {
  Fragment& fragment = fragments_[index];
  if (fragment.valid && fragment.version == version) return absl::OkStatus();
  fragment.valid = false;
  ASSIGN_OR_RETURN(
      const uint64_t image,
      options_.versions->LoadNewestImage(index, version, RangeOf(index, theta_),
                                         RangeOf(index, momentum_)));
  for (uint64_t v = image + 1; v <= version; ++v) {
    const auto it = fragment.history.find(v);
    if (it == fragment.history.end()) {
      return absl::DataLossError(absl::StrCat(
          "version ", v, " of fragment ", index, " cannot be rebuilt: image ",
          image, " is the newest good one and the journal's record of version ",
          v, " is no longer kept"));
    }
    RETURN_IF_ERROR(
        FoldInto(index, it->second.closed, v, &it->second.version).status());
  }
  fragment.version = version;
  fragment.valid = true;
  return absl::OkStatus();
}

absl::StatusOr<VersionPublished> FoldEngine::FoldInto(
    uint32_t index, const RoundClosed& closed, uint64_t version,
    const VersionPublished* recorded) {
  const std::string what =
      absl::StrCat("folding round ", closed.round, " of fragment ", index,
                   " into version ", version);
  Fragment& fragment = fragments_[index];
  std::vector<PartReader> readers;
  readers.reserve(closed.members.size());
  std::vector<FoldMember> members;
  for (const RoundMember& member : closed.members) {
    absl::StatusOr<PartReader> opened = options_.spools->OpenComplete(
        index, closed.round, member.worker, member.digest);
    RETURN_IF_ERROR(WithContext(opened.status(), what));
    readers.push_back(*std::move(opened));
    FoldMember fold_member;
    fold_member.worker = member.worker;
    fold_member.weight = member.weight;
    fold_member.update = &readers.back();
    const auto known = fragment.max_abs.find({closed.round, member.worker});
    if (known != fragment.max_abs.end()) fold_member.max_abs = known->second;
    members.push_back(fold_member);
  }
  const bool with_image =
      recorded != nullptr
          ? recorded->theta_image.bytes > 0
          // Never all fragments at once.
          : version % options_.image_every == index % options_.image_every;
  ASSIGN_OR_RETURN(VersionStore::Pending pending,
                   options_.versions->Create(index, version, /*with_blob=*/true,
                                             with_image));
  RETURN_IF_ERROR(WithContext(ReserveFiles(index, pending), what));
  OuterSettings outer;
  outer.lr = static_cast<float>(closed.outer_lr);
  outer.momentum = static_cast<float>(closed.outer_momentum);
  outer.nesterov = closed.nesterov;
  FoldOutput output;
  output.blob = pending.blob.get();
  output.theta_image = pending.theta_image.get();
  output.momentum_image = pending.momentum_image.get();
  output.threads = options_.threads;
  const std::vector<MergeTensor> tensors =
      MergeTensorsOf(*options_.layout, index);
  fragment.valid = false;
  const absl::StatusOr<FoldResult> folded =
      Fold(index, members, outer, options_.codec_down, RangeOf(index, theta_),
           RangeOf(index, momentum_), output, {closed.merge, tensors});
  RETURN_IF_ERROR(WithContext(folded.status(), what));
  const FoldResult& result = *folded;
  VersionPublished published;
  published.fragment = index;
  published.round = closed.round;
  published.version = version;
  published.digest = result.digest;
  published.blob = {result.blob_digest, result.blob_bytes};
  if (with_image) {
    published.theta_image = {result.theta_image_digest, result.image_bytes};
    published.momentum_image = {result.momentum_image_digest,
                                result.image_bytes};
  }
  if (recorded == nullptr) {
    RETURN_IF_ERROR(options_.versions->Commit(std::move(pending)));
  } else {
    RETURN_IF_ERROR(WithContext(CheckReproduced(*recorded, result), what));
    RETURN_IF_ERROR(options_.versions->Restore(std::move(pending)));
  }
  return published;
}

// Before the fold begins: one that runs out of space in the middle has spoilt
// theta, which must be read and folded again.
absl::Status FoldEngine::ReserveFiles(uint32_t index,
                                      const VersionStore::Pending& pending) {
  const int64_t elements = options_.layout->fragments[index].elements;
  const std::pair<WritableFile*, Codec> files[] = {
      {pending.blob.get(), options_.codec_down},
      {pending.theta_image.get(), Codec::kFp32},
      {pending.momentum_image.get(), Codec::kFp32}};
  for (const auto& [file, codec] : files) {
    if (file == nullptr) continue;
    RETURN_IF_ERROR(file->Reserve(PartFileBytes(codec, elements)));
  }
  return absl::OkStatus();
}

absl::StatusOr<VersionPublished> FoldEngine::Run(uint32_t index,
                                                 const FoldOrder& order) {
  RETURN_IF_ERROR(Rebuild(index, order.base_version));
  ASSIGN_OR_RETURN(VersionPublished published,
                   FoldInto(index, order.closed, order.base_version + 1,
                            /*recorded=*/nullptr));
  Fragment& fragment = fragments_[index];
  fragment.version = order.base_version + 1;
  fragment.valid = true;
  return published;
}

KeptImages FoldEngine::Kept() const {
  return {options_.keep_every, options_.image_every};
}

void FoldEngine::Prune(uint32_t index, Instant now) {
  Fragment& fragment = fragments_[index];
  // Spools back to the image before the newest one: should that one be
  // damaged, the one before still leads to every later version.
  if (fragment.images.size() >= 2) {
    const uint64_t base = fragment.images[fragment.images.size() - 2];
    const auto it = fragment.history.find(base);
    if (it != fragment.history.end()) {
      const uint64_t round = it->second.closed.round;
      std::erase_if(fragment.max_abs, [round](const auto& entry) {
        return entry.first.first <= round;
      });
      PruneSpools(index, round, kKeptEvidence);
    }
    fragment.history.erase(fragment.history.begin(),
                           fragment.history.lower_bound(base));
  }
  const absl::StatusOr<uint64_t> kept =
      options_.versions->Prune(index, options_.keep_images, Kept(), now);
  if (!kept.ok()) {
    DILOCO_LOG(WARNING) << "old versions stay error=\""
                        << kept.status().message() << "\"";
  }
}

void FoldEngine::PruneSpools(uint32_t index, uint64_t round, size_t evidence) {
  const absl::Status pruned = options_.spools->Prune(index, round, evidence);
  if (pruned.ok()) return;
  DILOCO_LOG(WARNING) << "old spools stay error=\"" << pruned.message() << "\"";
}

void FoldEngine::MakeRoom(const std::function<bool()>& enough, Instant now) {
  for (uint32_t f = 0; f < fragments_.size(); ++f) Prune(f, now);
  if (enough()) return;
  for (uint32_t f = 0; f < fragments_.size(); ++f) {
    // Of rounds that every later version can do without.
    if (!fragments_[f].history.empty()) {
      PruneSpools(f, fragments_[f].history.begin()->second.closed.round - 1,
                  /*evidence=*/0);
    }
  }
  DropImages(Kept(), enough, now);
  if (options_.keep_every != 0) DropImages({}, enough, now);
}

void FoldEngine::DropImages(const KeptImages& spared,
                            const std::function<bool()>& enough, Instant now) {
  bool more = true;
  while (more && !enough()) {
    more = false;
    for (uint32_t f = 0; f < fragments_.size(); ++f) {
      const absl::StatusOr<std::optional<uint64_t>> dropped =
          options_.versions->DropOldestImage(f, kImagesForStart, spared, now);
      if (!dropped.ok()) {
        DILOCO_LOG(WARNING) << "an old image stays error=\""
                            << dropped.status().message() << "\"";
      } else if (dropped->has_value()) {
        more = true;
        const bool promised = Kept().Has(**dropped);
        DILOCO_LOG(WARNING)
            << (promised ? "an image of keep.every was removed for disk space, "
                           "as no other one was left fragment="
                         : "an image was removed for disk space fragment=")
            << f << " version=" << **dropped
            << " hint=\"keep.last and keep.every are kept while there is "
               "room\"";
      }
    }
  }
}

}  // namespace diloco
