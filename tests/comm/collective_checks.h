// What every implementation of groups must do, whatever carries the bytes. For ranks that run at the same
// time, each on its own thread or in its own process.
#pragma once

#include "comm/bootstrap.h"
#include "comm/collectives.h"

namespace gemmad {

/// For implementations on host memory, which are complete on return.
inline const Stream kNoStream(static_cast<void*>(nullptr));

// Each is collective: every rank of `bootstrap` calls it at the same place. Throws std::runtime_error on the
// first rank that finds something wrong.

/// Every member's tensor becomes the root's, whoever is root, whatever the size.
void check_broadcast(Bootstrap& bootstrap, const Transport& transport);
/// Sums of whole numbers are exact, also of less elements than members.
void check_sums(Bootstrap& bootstrap, const Transport& transport);
/// Sums are rounded in the order of the members, to the same bytes everywhere.
void check_order_of_sums(Bootstrap& bootstrap, const Transport& transport);
/// Every member's part comes to its place, also where it is there already; a tensor without room is refused.
void check_gathering(Bootstrap& bootstrap, const Transport& transport);
/// Groups of some of the ranks, in any order, work at the same time and keep to themselves.
void check_subgroups(Bootstrap& bootstrap, const Transport& transport);
/// What goes down a chain of members arrives as it was.
void check_chain(Bootstrap& bootstrap, const Transport& transport);

}  // namespace gemmad
