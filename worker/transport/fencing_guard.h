// Remembers which life of which run this worker talks to, and refuses replies
// of another one. Used by the gRPC port; pure, so that the rules are tested
// without a network.
#ifndef WORKER_TRANSPORT_FENCING_GUARD_H_
#define WORKER_TRANSPORT_FENCING_GUARD_H_

#include "absl/status/status.h"
#include "common/base/fencing.h"
#include "common/base/mutex.h"

namespace diloco {

// Thread-safe.
class FencingGuard {
 public:
  // The highest seen; its lineage is empty before the first.
  Fencing current() const;

  // What the worker kept from an earlier process, before it joins. Lower than
  // what is known already: ignored.
  void Remember(const Fencing& kept);

  // Judges a reply; `asked` is what current() was when the call was made.
  // UNAVAILABLE: a reply that was overtaken by a restart, ask again.
  // FAILED_PRECONDITION: another lineage (join again), or a coordinator that is
  // older than one seen before or its twin; the last two are final: every later
  // call fails likewise.
  absl::Status Observe(const Fencing& asked, const Fencing& reply);
  // The same for the reply to Join, where another lineage is taken over.
  absl::Status ObserveJoin(const Fencing& asked, const Fencing& reply);

  // What made a twin or an older coordinator final; OK otherwise.
  absl::Status verdict() const;

 private:
  absl::Status Judge(const Fencing& asked, const Fencing& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  Fencing current_ ABSL_GUARDED_BY(mu_);
  absl::Status verdict_ ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // WORKER_TRANSPORT_FENCING_GUARD_H_
