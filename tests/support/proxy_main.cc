// A DelayingProxy as a program, for tests of real processes.
//
//   diloco-test-proxy --to PORT [--listen PORT] [--delay-ms N] [--rate BYTES/S]
//       [--queue BYTES] [--window BYTES] [--cut-every BYTES]
//       [--forget-idle-ms N]
//
// Prints the port it listens on. Each line on its standard input is a command,
// answered by one line: cut, stall, swallow, refuse and resume, which ends the
// three before it; delay-ms N, rate N, queue N, window N, cut-every N,
// forget-idle-ms N; stats. Ends when its input does.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "tests/support/delaying_proxy.h"

namespace diloco {
namespace {

// False when there is no setting of that name.
bool Set(DelayingProxy* proxy, const std::string& name, uint64_t value) {
  const absl::Duration time = absl::Milliseconds(static_cast<int64_t>(value));
  if (name == "delay-ms") {
    proxy->SetDelay(time);
  } else if (name == "rate") {
    proxy->SetRate(value);
  } else if (name == "queue") {
    proxy->SetQueue(value);
  } else if (name == "window") {
    proxy->SetWindow(value);
  } else if (name == "cut-every") {
    proxy->CutEvery(value);
  } else if (name == "forget-idle-ms") {
    proxy->ForgetIdle(time);
  } else {
    return false;
  }
  return true;
}

std::string Do(DelayingProxy* proxy, const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  const std::string& command = words[0];
  uint64_t value = 0;
  if (words.size() == 2 && absl::SimpleAtoi(words[1], &value)) {
    return Set(proxy, command, value) ? "ok" : "error: no such setting";
  }
  if (words.size() != 1) return "error: malformed";
  if (command == "cut") {
    proxy->CutAll();
  } else if (command == "stall") {
    proxy->Stall(true);
  } else if (command == "swallow") {
    proxy->SetBlackHole(true);
  } else if (command == "refuse") {
    proxy->Refuse(true);
  } else if (command == "resume") {
    proxy->Stall(false);
    proxy->SetBlackHole(false);
    proxy->Refuse(false);
  } else if (command == "stats") {
    return "up=" + std::to_string(proxy->bytes_up()) +
           " down=" + std::to_string(proxy->bytes_down()) +
           " connections=" + std::to_string(proxy->connections()) +
           " cuts=" + std::to_string(proxy->cuts());
  } else {
    return "error: no such command";
  }
  return "ok";
}

int Main(int argc, char** argv) {
  std::map<std::string, uint64_t> flags;
  bool good = argc % 2 == 1;
  for (int i = 1; good && i < argc; i += 2) {
    const std::string flag = argv[i];
    good = flag.rfind("--", 0) == 0 &&
           absl::SimpleAtoi(argv[i + 1], &flags[flag.substr(2)]);
  }
  if (good && flags["to"] > 0 && flags["to"] < 65536 &&
      flags["listen"] < 65536) {
    DelayingProxy proxy(static_cast<int>(flags["to"]),
                        static_cast<int>(flags["listen"]));
    for (const auto& [name, value] : flags) {
      if (name == "to" || name == "listen") continue;
      good = good && Set(&proxy, name, value);
    }
    if (good) {
      std::cout << proxy.port() << std::endl;
      std::string line;
      while (std::getline(std::cin, line)) {
        std::cout << Do(&proxy, line) << std::endl;
      }
      return 0;
    }
  }
  std::fputs(
      "Usage: diloco-test-proxy --to PORT [--listen PORT] [--delay-ms N]\n"
      "  [--rate BYTES/S] [--queue BYTES] [--window BYTES] [--cut-every "
      "BYTES]\n"
      "  [--forget-idle-ms N]\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace diloco

int main(int argc, char** argv) { return diloco::Main(argc, argv); }
