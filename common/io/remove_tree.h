// Removing what is no longer wanted, as far as that goes: for clean-up, where
// the error that led there is the one to report.
#ifndef COMMON_IO_REMOVE_TREE_H_
#define COMMON_IO_REMOVE_TREE_H_

#include <string>

#include "common/io/file_system.h"

namespace diloco {

// Removes a file, or a directory and what is in it.
void RemoveTree(FileSystem* fs, const std::string& path);

// Removes what has names that NewNameBeside(fs, path) gave to processes that
// were killed. One process at a time writes beside a path.
void RemoveLeftBeside(FileSystem* fs, const std::string& path);

}  // namespace diloco

#endif  // COMMON_IO_REMOVE_TREE_H_
