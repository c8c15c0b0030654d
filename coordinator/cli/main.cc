// dilococtl: the operator's command line. See coordinator/cli/README.md.
#include <string>
#include <vector>

#include "coordinator/cli/commands.h"

int main(int argc, char** argv) {
  return diloco::RunDilococtl(std::vector<std::string>(argv + 1, argv + argc));
}
