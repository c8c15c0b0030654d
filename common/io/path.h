// Paths as people write them, for whoever takes one from a command line.
#ifndef COMMON_IO_PATH_H_
#define COMMON_IO_PATH_H_

#include <string>

namespace diloco {

// "dir/", as a shell completes it, is "dir": names beside it and below it are
// made from that. "/" stays.
std::string WithoutSlash(std::string dir);

}  // namespace diloco

#endif  // COMMON_IO_PATH_H_
