// A long-lived trainer neither grows nor leaves threads and files behind.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"

namespace diloco {
namespace {

struct Usage {
  double resident_bytes = 0;
  size_t threads = 0;
  size_t files = 0;
};

size_t Entries(const char* directory) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(directory), {}));
}

Usage Measure() {
  std::ifstream statm("/proc/self/statm");
  double total = 0;
  double resident = 0;
  statm >> total >> resident;
  return {resident * static_cast<double>(sysconf(_SC_PAGESIZE)),
          Entries("/proc/self/task"), Entries("/proc/self/fd")};
}

TEST_CASE("C8.4 memory, threads and files stay equal over 2000 steps") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta =
      testing::RandomTheta(testing::LayoutOf(config), 1);
  auto trainer = testing::MakeTrainer(config, theta);
  const Batch batch = testing::RandomBatch(config, 2, 2);
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      testing::Must(trainer->Step(batch, 1e-3));
      if (i % 20 != 0) continue;
      testing::Must(trainer->Evaluate(batch));
      testing::Must(trainer->Load(0, theta));
    }
  };
  run(200);
  const Usage before = Measure();
  run(1800);
  const Usage after = Measure();
  REQUIRE(after.resident_bytes <= 1.02 * before.resident_bytes);
  REQUIRE(after.threads == before.threads);
  REQUIRE(after.files == before.files);
}

}  // namespace
}  // namespace diloco
