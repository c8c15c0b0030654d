// All of LibTorch that this directory uses, precompiled once. Every .cc here
// that needs torch includes this and no other torch header.
#ifndef WORKER_TRAIN_TORCH_HEADERS_H_
#define WORKER_TRAIN_TORCH_HEADERS_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#endif  // WORKER_TRAIN_TORCH_HEADERS_H_
