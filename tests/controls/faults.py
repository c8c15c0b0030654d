"""The planted faults: what is changed where, and which tests may notice.

Each is a bug that a system of this kind has had, or could have without anybody
noticing. `find` stands exactly once in `file`; `put` takes its place. `tests`
are programs of the build, tried in this order until one fails.
"""


def fault(name, file, find, put, *tests):
    return {"name": name, "file": file, "find": find, "put": put,
            "tests": tests}


FAULTS = [
    # The fold.
    fault("an update is counted twice", "coordinator/runtime/fold_engine.cc",
          "    members.push_back(fold_member);\n",
          "    members.push_back(fold_member);\n"
          "    if (members.size() == 1) members.push_back(fold_member);\n",
          "component_coordinator", "component_agent"),
    fault("sum instead of mean", "coordinator/aggregate/fold_kernel.cc",
          "const Job job(inputs, outer, total);",
          "const Job job(inputs, outer, total / inputs.size());",
          "unit_aggregate"),
    fault("a missing worker counts as zero",
          "coordinator/aggregate/fold_kernel.cc",
          "const Job job(inputs, outer, total);",
          "const Job job(inputs, outer, total + inputs[0].weight);",
          "unit_aggregate"),
    fault("heavy ball instead of Nesterov",
          "coordinator/runtime/fold_engine.cc",
          "outer.nesterov = closed.nesterov;", "outer.nesterov = false;",
          "component_coordinator", "component_agent", "unit_train"),
    fault("momentum begins anew each round",
          "coordinator/runtime/fold_engine.cc",
          "  fragment.valid = false;\n  const absl::StatusOr<FoldResult> folded",
          "  fragment.valid = false;\n"
          "  std::fill(momentum_.begin(), momentum_.end(), 0.0f);\n"
          "  const absl::StatusOr<FoldResult> folded",
          "component_coordinator", "component_agent", "unit_train"),
    fault("momentum is lost at a restart",
          "coordinator/runtime/fold_engine.cc",
          "  for (uint64_t v = image + 1; v <= version; ++v) {",
          "  std::fill(momentum_.begin(), momentum_.end(), 0.0f);\n"
          "  for (uint64_t v = image + 1; v <= version; ++v) {",
          "component_coordinator", "component_agent"),
    fault("updates are folded in reverse order",
          "coordinator/runtime/fold_engine.cc",
          "  const bool with_image = recorded != nullptr",
          "  std::reverse(members.begin(), members.end());\n"
          "  const bool with_image = recorded != nullptr",
          "component_coordinator", "component_agent"),
    fault("a weight is not clamped to the lease",
          "coordinator/core/decide_round.cc",
          "std::min(update->value.tokens, "
          "open.leases.at(update->worker).tokens);",
          "update->value.tokens;", "unit_core", "component_coordinator"),
    fault("a rotten frame is folded", "coordinator/aggregate/fold.cc",
          "members_[i].update->CheckFrame(frame_, crcs_[i])",
          "absl::OkStatus()", "unit_aggregate", "component_coordinator"),
    # Durability.
    fault("an update's receipt without its fsync",
          "coordinator/store/upload_file.cc",
          "  absl::Status synced = file_->Sync();",
          "  absl::Status synced;", "unit_store", "component_coordinator"),
    fault("an update's name is not made durable",
          "coordinator/store/upload_file.cc",
          "if (synced.ok()) synced = fs_->SyncDir(DirName(paths_.complete));",
          "", "unit_store", "component_coordinator"),
    fault("the journal is not fsynced", "coordinator/store/journal.cc",
          "if (status.ok()) status = file_->Sync();", "", "unit_store",
          "component_coordinator"),
    fault("replies leave before their facts are durable",
          "coordinator/runtime/sequencer.cc",
          "    if (!applied.empty() && !CommitOrWait()) {",
          "    for (Answer& answer : answers) {\n"
          "      if (!answer.reply) continue;\n"
          "      std::exchange(answer.reply, nullptr)(answer.status,\n"
          "                                           answer.sequence);\n"
          "    }\n"
          "    if (!applied.empty() && !CommitOrWait()) {",
          "component_coordinator", "component_agent"),
    fault("versions are renamed before they are fsynced",
          "coordinator/store/version_store.cc",
          "if (file != nullptr) RETURN_IF_ERROR(file->Sync());",
          "(void)file;", "unit_store", "component_coordinator"),
    fault("a torn tail stays in the journal", "coordinator/store/journal.cc",
          "    RETURN_IF_ERROR(torn->Truncate(end));\n", "",
          "unit_store", "component_coordinator"),
    fault("a segment of the journal is not compared with the one before",
          "coordinator/store/journal_scan.cc",
          "if (header == expected)", "if (header.number == number)",
          "unit_store"),
    fault("the newest segment of the journal may be gone",
          "coordinator/store/journal_scan.cc",
          "if (head.has_value() && *head > numbers.size())", "if (false)",
          "unit_store"),
    fault("retention takes what a reader is at",
          "coordinator/store/retention.cc", "pins_.count(file.digest) != 0",
          "false", "unit_store", "component_coordinator"),
    fault("updates go as soon as one image covers them",
          "coordinator/runtime/fold_engine.cc",
          "fragment.images[fragment.images.size() - 2]",
          "fragment.images[fragment.images.size() - 1]",
          "component_coordinator"),
    fault("a round opens without room for its files",
          "coordinator/runtime/fold_loop.cc",
          "if (free_bytes_ < wanted && !state.finished)", "if (false)",
          "component_coordinator"),
    fault("an upload's digest is not compared",
          "coordinator/store/upload_file.cc",
          "  if (digest != value_.digest) {", "  if (false) {", "unit_store"),
    fault("a chunk's checksum is not compared",
          "coordinator/service/blob_write.cc",
          "    if (crc != chunk.crc32c()) {", "    if (false) {",
          "component_service"),
    fault("a transfer that stood still goes on over the dead connection",
          "common/rpc/blob_upload.cc",
          "    if (absl::IsDeadlineExceeded(status)) connections_->Renew();\n",
          "", "component_service"),
    fault("a late beat does not slow bulk down", "common/rpc/line.cc",
          "    SetPace(rate_ < kFastLine ? kShare * rate_ : 0);", "    SetPace(0);",
          "unit_rpc"),
    # Who may speak, and what is said twice.
    fault("a coordinator serves callers from its future",
          "coordinator/runtime/coordinator_impl.cc",
          "  if (fencing.epoch > fencing_.epoch) {", "  if (false) {",
          "component_coordinator", "component_service", "component_agent"),
    fault("a worker follows a coordinator that is behind",
          "worker/transport/fencing_guard.cc",
          "if (current_.lineage.empty() || reply.epoch > current_.epoch) {",
          "if (current_.lineage.empty() || reply.epoch != current_.epoch) {",
          "unit_rpc"),
    fault("any scratch directory may take a name over",
          "coordinator/core/decide_membership.cc",
          "  return event.previous_session == worker.previous_session && !used;",
          "  return !used;", "unit_core", "component_agent"),
    fault("a copied scratch under another name is let in",
          "coordinator/core/decide_membership.cc",
          "    if (name != event.worker &&\n", "    if (false &&\n",
          "unit_core", "component_agent"),
    fault("an update on another theta is taken",
          "coordinator/core/judge_upload.cc",
          "  if (value.base_digest != fragment.digest) {", "  if (false) {",
          "unit_core", "component_coordinator"),
    fault("a receipt that got lost lets work count twice",
          "worker/runtime/agent.cc",
          "      case Kind::kCatchUp:\n"
          "        if (action.carry || residual_.pending()) status = Settle();",
          "      case Kind::kCatchUp:", "component_agent"),
    fault("a worker takes the published digest for that of its own copy",
          "worker/runtime/versions.cc",
          "    held_digest_ = trainer_->AnchorDigest(fragment);",
          "    held_digest_ = file.result_digest;", "component_agent"),
    # Rounds and schedules.
    fault("a round waits for workers that came in mid-round",
          "coordinator/core/round_policy.cc",
          "(open.late.count(name) != 0) == late &&", "!late &&", "unit_core"),
    fault("one slow machine sets everybody's deadline",
          "coordinator/core/eligibility.cc",
          "const double median = MedianOf(finishes);",
          "const double median ="
          " *std::max_element(finishes.begin(), finishes.end());",
          "unit_core"),
    fault("what a slow worker has trained is dropped with an image",
          "worker/runtime/versions.cc",
          "RETURN_IF_ERROR(carry ? trainer_->Rebase(fragment, values)\n"
          "                            : trainer_->Load(fragment, values));",
          "RETURN_IF_ERROR(trainer_->Load(fragment, values));",
          "component_agent"),
    fault("a probe leaves its steps in the optimiser",
          "worker/runtime/probe.cc",
          "  RETURN_IF_ERROR(ImportBuffers(before));\n",
          "  (void)before;\n", "component_agent"),
    fault("any loss passes the probe", "coordinator/core/decide_probe.cc",
          "constexpr double kTolerance = 0.01;",
          "constexpr double kTolerance = 100;", "unit_core"),
    fault("a round waits beyond its deadline",
          "coordinator/core/decide_round.cc", "  if (!overdue) return;\n",
          "  if (usable < 1000) return;\n", "unit_core"),
    fault("the learning rate starts over in each round",
          "worker/core/schedule.cc",
          "  return progress + static_cast<double>(step + 1) * progress_step;",
          "  return (progress > 2 ? progress : 0) +\n"
          "         static_cast<double>(step + 1) * progress_step;",
          "unit_schedule", "component_agent"),
    # The trainer.
    fault("theta moves away from the workers",
          "worker/train/torch_trainer.cc",
          "delta[i] = anchor[i] - delta[i];",
          "delta[i] = delta[i] - anchor[i];", "unit_train"),
    fault("the anchor follows the local values",
          "worker/train/torch_trainer.cc",
          "    const absl::Span<const float> anchor = AnchorOf(fragment);\n"
          "    delta.resize(anchor.size());\n",
          "    const absl::Span<float> anchor = AnchorOf(fragment);\n"
          "    RETURN_IF_ERROR(Guarded(\n"
          "        \"take\", [&] { return CopyLocal(fragment, anchor); }));\n"
          "    delta.resize(anchor.size());\n", "unit_train"),
    fault("weight decay goes into the gradient", "worker/train/adamw.cc",
          "  if (elements == 0) return;\n",
          "  if (elements == 0) return;\n"
          "  params_.grads().narrow(0, first, elements).add_(\n"
          "      params_.values().narrow(0, first, elements), decay);\n"
          "  decay = 0;\n", "unit_train"),
    fault("AdamW's step count stands still", "worker/train/adamw.cc",
          "  step_.fill_(static_cast<double>(steps_));",
          "  step_.fill_(1.0);", "unit_train"),
]
