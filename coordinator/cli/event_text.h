// A fact of the coordinator's journal in words, one line, for `watch`.
#ifndef COORDINATOR_CLI_EVENT_TEXT_H_
#define COORDINATOR_CLI_EVENT_TEXT_H_

#include <string>

#include "diloco/v1/journal.pb.h"

namespace diloco {

std::string EventText(const v1::Record& record);

}  // namespace diloco

#endif  // COORDINATOR_CLI_EVENT_TEXT_H_
