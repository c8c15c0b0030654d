// Error feedback of a worker's fragment: what the encoding of one update lost
// is part of the next. Kept in the checkpoint, so that a restart goes on bit
// for bit.
//
//   PartWriter writer(file, header, residual.Begin(wanted, elements,
//   rounding));
//   ... upload ...
//   residual.Accepted();                // or, each when it is known:
//   residual.Refused(update);           // what was sent comes back
//   residual.Late();                    // the work is encoded again later
//   residual.Lost();                    // nobody knows
//
// Until then both are kept, the residual before the update and the one after
// it: a damaged update file is encoded again from the former to the same bytes.
#ifndef WORKER_UPDATE_RESIDUAL_H_
#define WORKER_UPDATE_RESIDUAL_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tensor/part_file.h"
#include "worker/update/checkpoint.h"

namespace diloco {

// One thread at a time.
class Residual {
 public:
  // For an update of `elements` values. The spans point into this object. When
  // error feedback is not `wanted` any more, what is left from earlier updates
  // goes into this one, and what its encoding loses is lost.
  PartEncoding Begin(bool wanted, size_t elements, Rounding rounding);

  void Accepted();
  // Adds the decoded update to what was lost of it. An error when the file
  // cannot be read: then as Late.
  absl::Status Refused(const PartReader& update);
  // As if the update had never been encoded.
  void Late();
  // Nothing when no update is under way. Else drops everything: the residual
  // may have been sent with it, and is not to be sent twice.
  void Lost();
  // Of another lineage.
  void Clear();
  // An update is under way whose fate decides what the residual is.
  bool pending() const { return !after_.empty(); }

  // Appends none to two buffers, named after the fragment.
  void Export(uint32_t fragment, std::vector<NamedBuffer>* buffers) const;
  // False: not a buffer of this fragment's.
  bool Import(uint32_t fragment, const NamedBuffer& buffer);

 private:
  std::vector<float> before_;  // Empty: all zero.
  std::vector<float> after_;   // Empty: no update under way, or not wanted.
};

}  // namespace diloco

#endif  // WORKER_UPDATE_RESIDUAL_H_
