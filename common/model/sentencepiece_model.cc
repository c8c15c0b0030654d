#include "common/model/sentencepiece_model.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace diloco {
namespace {

// Reads the protobuf wire format field by field.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view bytes) : rest_(bytes) {}

  // The next field; false at the end or on damage (see ok()).
  bool Next() {
    if (rest_.empty() || !ok_) return false;
    uint64_t tag = 0;
    if (!Varint(&tag)) return Damaged();
    number = tag >> 3;
    value = 0;
    bytes = {};
    switch (tag & 7) {
      case 0:
        return Varint(&value) || Damaged();
      case 1:
        return Fixed(8);
      case 5:
        return Fixed(4);
      case 2: {
        uint64_t length = 0;
        if (!Varint(&length) || length > rest_.size()) return Damaged();
        bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        return true;
      }
      default:
        return Damaged();
    }
  }
  bool ok() const { return ok_; }

  uint64_t number = 0;
  uint64_t value = 0;       // Of a varint or fixed-width field.
  absl::string_view bytes;  // Of a length-delimited field.

 private:
  bool Damaged() {
    ok_ = false;
    return false;
  }
  bool Varint(uint64_t* out) {
    *out = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      *out |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Fixed(size_t width) {
    if (rest_.size() < width) return Damaged();
    for (size_t i = 0; i < width; ++i) {
      value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    }
    rest_.remove_prefix(width);
    return true;
  }

  absl::string_view rest_;
  bool ok_ = true;
};

float FloatFromBits(uint64_t bits) {
  const uint32_t narrow = static_cast<uint32_t>(bits);
  float value = 0;
  std::memcpy(&value, &narrow, sizeof(value));
  return value;
}

bool ParsePiece(absl::string_view bytes, SentencePieceModel::Piece* piece) {
  FieldReader field(bytes);
  while (field.Next()) {
    if (field.number == 1) piece->text = std::string(field.bytes);
    if (field.number == 2) piece->score = FloatFromBits(field.value);
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) return false;
      piece->type = static_cast<SentencePieceModel::Type>(field.value);
    }
  }
  return field.ok() && !piece->text.empty();
}

bool ParseTrainerSpec(absl::string_view bytes, SentencePieceModel* model) {
  FieldReader field(bytes);
  while (field.Next()) {
    const int32_t id = static_cast<int32_t>(field.value);
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4) return false;
        model->algorithm =
            static_cast<SentencePieceModel::Algorithm>(field.value);
        break;
      case 24:
        model->suffix_whitespace = field.value != 0;
        break;
      case 35:
        model->byte_fallback = field.value != 0;
        break;
      case 40:
        model->unk_id = id;
        break;
      case 41:
        model->bos_id = id;
        break;
      case 42:
        model->eos_id = id;
        break;
      case 43:
        model->pad_id = id;
        break;
      default:
        break;
    }
  }
  return field.ok();
}

bool ParseNormalizerSpec(absl::string_view bytes, SentencePieceModel* model) {
  FieldReader field(bytes);
  while (field.Next()) {
    if (field.number == 2) model->charsmap = std::string(field.bytes);
    if (field.number == 3) model->add_dummy_prefix = field.value != 0;
    if (field.number == 4) model->remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model->escape_whitespaces = field.value != 0;
  }
  return field.ok();
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    const std::string& name, absl::string_view bytes) {
  const auto fail = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": no SentencePiece model: ", why));
  };
  SentencePieceModel model;
  FieldReader field(bytes);
  while (field.Next()) {
    bool good = true;
    if (field.number == 1) {
      model.pieces.emplace_back();
      good = ParsePiece(field.bytes, &model.pieces.back());
      if (!good)
        return fail(
            absl::StrCat("piece ", model.pieces.size() - 1, " is damaged"));
    } else if (field.number == 2) {
      good = ParseTrainerSpec(field.bytes, &model);
    } else if (field.number == 3) {
      good = ParseNormalizerSpec(field.bytes, &model);
    }
    if (!good) return fail("its settings are damaged");
  }
  if (!field.ok()) return fail("damaged or cut short");
  if (model.pieces.empty()) return fail("it has no pieces");
  const int32_t size = static_cast<int32_t>(model.pieces.size());
  // The stored ids are wishes: what the pieces are decides.
  const auto check = [&](int32_t* id, SentencePieceModel::Type type) {
    if (*id < 0 || *id >= size || model.pieces[*id].type != type) *id = -1;
  };
  check(&model.unk_id, SentencePieceModel::Type::kUnknown);
  check(&model.bos_id, SentencePieceModel::Type::kControl);
  check(&model.eos_id, SentencePieceModel::Type::kControl);
  check(&model.pad_id, SentencePieceModel::Type::kControl);
  return model;
}

}  // namespace diloco
