// CRC-32C by the widest instructions that the CPU has, by tables without any. A
// single stream of the crc32 instruction waits for its own result, so long
// inputs are cut into three lanes whose checksums are combined with a small
// table.
#include "common/io/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "common/io/crc32c_wide.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace diloco {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Reflected.

// tables[k][b]: checksum of byte b followed by k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

namespace crc32c_internal {

uint32_t ExtendByTable(uint32_t crc, absl::string_view bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t n = bytes.size();
  crc = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    crc ^= static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
           static_cast<uint32_t>(p[2]) << 16 |
           static_cast<uint32_t>(p[3]) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^
          kTables[5][(crc >> 16) & 0xff] ^ kTables[4][crc >> 24] ^
          kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
          kTables[0][p[7]];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

}  // namespace crc32c_internal

#if defined(__x86_64__)
namespace {

constexpr size_t kLaneBytes = 4096;

// shift[k][b]: what byte k (from the low end) of a checksum, of value b, is
// after kLaneBytes zero bytes; the checksum is linear, so four look-ups and
// three exclusive-ors move any checksum over a lane.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr ShiftTable MakeShiftTable() {
  // The image of each single bit, by repeated squaring of "one zero byte".
  std::array<uint32_t, 32> image{};
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t crc = uint32_t{1} << bit;
    image[bit] = (crc >> 8) ^ kTables[0][crc & 0xff];
  }
  for (size_t zeros = 1; zeros < kLaneBytes; zeros *= 2) {
    std::array<uint32_t, 32> twice{};
    for (int bit = 0; bit < 32; ++bit) {
      for (int i = 0; i < 32; ++i) {
        if ((image[bit] >> i) & 1) twice[bit] ^= image[i];
      }
    }
    image = twice;
  }
  ShiftTable table{};
  for (int k = 0; k < 4; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      for (int bit = 0; bit < 8; ++bit) {
        if ((b >> bit) & 1) table[k][b] ^= image[8 * k + bit];
      }
    }
  }
  return table;
}

constexpr ShiftTable kShift = MakeShiftTable();

uint32_t ShiftOverLane(uint64_t crc) {
  return kShift[0][crc & 0xff] ^ kShift[1][(crc >> 8) & 0xff] ^
         kShift[2][(crc >> 16) & 0xff] ^ kShift[3][(crc >> 24) & 0xff];
}

uint64_t Load64(const char* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

__attribute__((target("sse4.2"))) uint32_t ExtendBySse42(
    uint32_t start, absl::string_view bytes) {
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t crc = ~start;
  for (; n >= 3 * kLaneBytes; n -= 3 * kLaneBytes, p += 3 * kLaneBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      crc = _mm_crc32_u64(crc, Load64(p + i));
      second = _mm_crc32_u64(second, Load64(p + kLaneBytes + i));
      third = _mm_crc32_u64(third, Load64(p + 2 * kLaneBytes + i));
    }
    crc = ShiftOverLane(crc) ^ second;
    crc = ShiftOverLane(crc) ^ third;
  }
  for (; n >= 8; n -= 8, p += 8) crc = _mm_crc32_u64(crc, Load64(p));
  for (; n > 0; --n, ++p) {
    crc = _mm_crc32_u8(static_cast<uint32_t>(crc), static_cast<uint8_t>(*p));
  }
  return ~static_cast<uint32_t>(crc);
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (bytes.size() >= kWideCrcBytes && HasWideCrc32c()) {
    const size_t whole = bytes.size() - bytes.size() % kWideCrcBytes;
    crc = ExtendCrc32cWide(crc, bytes.substr(0, whole));
    bytes.remove_prefix(whole);
  }
  return has_sse42 ? ExtendBySse42(crc, bytes)
                   : crc32c_internal::ExtendByTable(crc, bytes);
}
#else
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  return crc32c_internal::ExtendByTable(crc, bytes);
}
#endif

}  // namespace diloco
