// Bytes copied so far, on one line of a terminal; silent elsewhere.
#ifndef COORDINATOR_CLI_PROGRESS_H_
#define COORDINATOR_CLI_PROGRESS_H_

#include <cstdint>
#include <functional>

namespace diloco {

class CopyProgress {
 public:
  CopyProgress();
  ~CopyProgress();  // Clears the line.
  CopyProgress(const CopyProgress&) = delete;
  std::function<void(uint64_t bytes)> callback() const;

 private:
  const bool show_;
};

}  // namespace diloco

#endif  // COORDINATOR_CLI_PROGRESS_H_
