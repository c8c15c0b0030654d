// The version of this build, e.g. "0.1.0", as it is told to peers.
#ifndef COMMON_BASE_VERSION_H_
#define COMMON_BASE_VERSION_H_

namespace diloco {

const char* BuildVersion();

}  // namespace diloco

#endif  // COMMON_BASE_VERSION_H_
