#include <string>

#include "common/rpc/message_codec.h"
#include "common/rpc/protocol.h"
#include "common/rpc/settings_codec.h"
#include "common/rpc/status_codec.h"
#include "common/rpc/traffic.h"
#include "tests/support/catch.h"
#include "worker/transport/port_codec.h"

namespace diloco {
namespace {

RunSettings Sample() {
  RunSettings settings;
  settings.run = "kjv";
  settings.seed = 1234567890123;
  settings.model.layers = 4;
  settings.model.hidden = 128;
  settings.model.heads = 4;
  settings.model.kv_heads = 2;
  settings.model.head_dim = 32;
  settings.model.ffn = 344;
  settings.model.vocab = 2048;
  settings.model.tied = true;
  settings.model.qk_norm = true;
  settings.model.rope_theta = 5e5;
  settings.model.rms_norm_eps = 1e-6;
  settings.model.max_positions = 128;
  settings.model.z_loss = 1e-4;
  settings.train.tokens = 1800000;
  settings.train.batch_tokens = 1024;
  settings.train.seq_len = 128;
  settings.train.lr = 3e-3;
  settings.train.beta1 = 0.8;
  settings.train.beta2 = 0.99;
  settings.train.eps = 1e-9;
  settings.train.weight_decay = 0.01;
  settings.train.clip = 0.5;
  settings.train.schedule = ScheduleShape::kLinear;
  settings.train.warmup_tokens = 50000;
  settings.train.decay_share = 0.3;
  settings.train.min_lr = 0.05;
  settings.train.max_skipped_steps = 3;
  settings.fragments = {
      FragmentPattern::kNames, 3, {"*embed*|*norm*", "*mlp*", "*"}};
  settings.overlap = 5;
  settings.merge = MergeMode::kSlip;
  settings.mix = 0.25;
  settings.codec_up = Codec::kFp32;
  settings.codec_down = Codec::kFp16;
  settings.error_feedback = true;
  settings.stochastic_rounding = true;
  settings.late = LatePolicy::kReject;
  settings.join_ramp_steps = 7;
  settings.join_probe = true;
  settings.layout_digest = Sha256("layout");
  return settings;
}

TEST_CASE("run settings survive the wire, every field") {
  v1::RunSettings wire;
  EncodeRunSettings(Sample(), &wire);
  const auto decoded = DecodeRunSettings(wire);
  REQUIRE(decoded.ok());
  REQUIRE(*decoded == Sample());
}

TEST_CASE(
    "C7.4 settings that this build does not know are refused by name, "
    "never read as a default") {
  v1::RunSettings wire;
  EncodeRunSettings(Sample(), &wire);
  std::string field;
  SECTION("schedule") {
    wire.mutable_train()->set_schedule("spiral");
    field = "train.schedule.shape: this build does not know \"spiral\"";
  }
  SECTION("codec") {
    wire.set_codec_up("topk2");
    field = "sync.up: this build does not know \"topk2\"";
  }
  SECTION("late") {
    wire.set_late("discount");
    field = "sync.late: this build does not know \"discount\"";
  }
  SECTION("precision") {
    wire.mutable_train()->set_precision("bf16");
    field = "train.precision: this build does not know \"bf16\"";
  }
  const auto decoded = DecodeRunSettings(wire);
  REQUIRE(decoded.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(decoded.status().message().find(field) != absl::string_view::npos);
}

TEST_CASE("settings that no coordinator sends are refused") {
  v1::RunSettings wire;
  EncodeRunSettings(Sample(), &wire);
  SECTION("model") { wire.mutable_model()->set_heads(0); }
  SECTION("batch") { wire.mutable_train()->set_batch_tokens(0); }
  SECTION("digest") { wire.set_layout_digest("short"); }
  REQUIRE(DecodeRunSettings(wire).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE("C7.4 enum values of a newer coordinator are refused") {
  Fencing fencing{.lineage = std::string(16, 'L'),
                  .epoch = 1,
                  .boot_nonce = std::string(8, 'N')};
  v1::RunView view;
  EncodeFencing(fencing, view.mutable_fencing());
  view.set_phase(v1::PHASE_RUNNING);
  EncodeRunSettings(Sample(), view.mutable_settings());
  REQUIRE(DecodeView(view).ok());
  for (const int phase : {0, 99}) {
    view.set_phase(static_cast<v1::Phase>(phase));
    REQUIRE(DecodeView(view).status().code() ==
            absl::StatusCode::kInvalidArgument);
  }
  v1::ResolveResponse files;
  files.add_files()->set_kind(static_cast<v1::FileKind>(99));
  REQUIRE(DecodeFiles(files).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a status keeps its code and message, over the wire and back") {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    REQUIRE(FromGrpcStatus(ToGrpcStatus(status)) == status);
  }
  REQUIRE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
  REQUIRE(ToGrpcStatus(absl::InternalError(std::string(1 << 20, 'x')))
              .error_message()
              .size() == 4096);
  REQUIRE(FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(77), "new"))
              .code() == absl::StatusCode::kUnknown);
}

TEST_CASE("fencing is absent or complete") {
  v1::Fencing wire;
  REQUIRE(DecodeFencing(wire)->lineage.empty());
  wire.set_lineage(std::string(16, 'L'));
  wire.set_boot_nonce(std::string(8, 'N'));
  REQUIRE_FALSE(DecodeFencing(wire).ok());  // No epoch.
  wire.set_epoch(3);
  REQUIRE(DecodeFencing(wire)->epoch == 3);
  wire.set_boot_nonce("short");
  REQUIRE_FALSE(DecodeFencing(wire).ok());
}

TEST_CASE("two ranges agree on the highest common protocol") {
  const ProtocolRange ours{.min = 2, .max = 4, .features = {}};
  REQUIRE(*AgreeOnProtocol(ours, {.min = 1, .max = 3, .features = {}}, "w",
                           "b") == 3);
  REQUIRE(*AgreeOnProtocol(ours, {.min = 4, .max = 9, .features = {}}, "w",
                           "b") == 4);
  const absl::Status older =
      AgreeOnProtocol(ours, {.min = 1, .max = 1, .features = {}}, "worker a",
                      "0.0.9")
          .status();
  REQUIRE(older.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(older.message().find("update worker a") != absl::string_view::npos);
  REQUIRE(older.message().find("0.0.9") != absl::string_view::npos);
  REQUIRE(AgreeOnProtocol(ours, {.min = 5, .max = 4, .features = {}}, "w", "b")
              .status()
              .code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("wire bytes are message, prefix and frame headers") {
  REQUIRE(WireBytes(uint64_t{0}) == 5 + 9);
  REQUIRE(WireBytes(uint64_t{16384 - 5}) == 16384 + 9);
  REQUIRE(WireBytes(uint64_t{16384 - 4}) == 16385 + 18);
}

}  // namespace
}  // namespace diloco
