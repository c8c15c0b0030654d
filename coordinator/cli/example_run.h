// The annotated example deploy/examples/run.yaml, which the build puts into
// dilococtl for `config init`.
#ifndef COORDINATOR_CLI_EXAMPLE_RUN_H_
#define COORDINATOR_CLI_EXAMPLE_RUN_H_

namespace diloco {

extern const char kExampleRun[];

}  // namespace diloco

#endif  // COORDINATOR_CLI_EXAMPLE_RUN_H_
