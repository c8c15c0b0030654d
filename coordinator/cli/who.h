// Who asks for a change, as the journal keeps it. Used by change_settings.
#ifndef COORDINATOR_CLI_WHO_H_
#define COORDINATOR_CLI_WHO_H_

#include <string>

namespace diloco {

// "ann@desk": user and machine of this process.
std::string WhoAsks();

}  // namespace diloco

#endif  // COORDINATOR_CLI_WHO_H_
