// Part files in a folder of their own, for the trainer's tests.
#ifndef TESTS_UNIT_TRAIN_PART_FILES_H_
#define TESTS_UNIT_TRAIN_PART_FILES_H_

#include <string>
#include <vector>

#include "common/io/file_system.h"
#include "common/tensor/part_file.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/train/small_model.h"

namespace diloco::testing {

inline void WritePart(const std::string& path, const std::vector<float>& values,
                      uint32_t fragment = 0) {
  auto file = Must(FileSystem::Posix()->OpenForWrite(path));
  PartWriter writer(file.get(),
                    {.codec = Codec::kFp32,
                     .fragment = fragment,
                     .elements = static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); i += kFrameElements) {
    Must(writer.Append(absl::MakeConstSpan(values).subspan(i, kFrameElements)));
  }
  Must(writer.Finish().status());
}

inline PartReader OpenPart(const std::string& path) {
  return Must(
      PartReader::Open(Must(FileSystem::Posix()->OpenForRead(path)), path));
}

inline std::vector<float> ReadPart(const std::string& path) {
  const PartReader reader = OpenPart(path);
  std::vector<float> values(reader.header().elements);
  for (int64_t i = 0; i < reader.frames(); ++i) {
    Must(reader.ReadFrame(i, absl::MakeSpan(values).subspan(
                                 i * kFrameElements, reader.FrameElements(i))));
  }
  return values;
}

inline std::vector<float> TakeDelta(Trainer& trainer, const std::string& path) {
  const Trainer::Ticket ticket = Must(trainer.Take(0));
  auto file = Must(FileSystem::Posix()->OpenForWrite(path));
  PartWriter writer(file.get(), {.codec = Codec::kFp32,
                                 .fragment = 0,
                                 .elements = trainer.layout().elements});
  Must(trainer.Encode(ticket, writer));
  Must(writer.Finish().status());
  return ReadPart(path);
}

}  // namespace diloco::testing

#endif  // TESTS_UNIT_TRAIN_PART_FILES_H_
