// The bootstrap over MPI: starts MPI, ends it. bootstrap_mpi.cpp is the only file that includes MPI.
#pragma once

#include <memory>

#include "comm/bootstrap.h"

namespace gemmad {

/// Starts MPI (MPI_THREAD_FUNNELED) on the calling thread, which becomes the only one that may use the
/// result. Destroying the result ends MPI; that waits for the other ranks. Throws BootstrapError when MPI
/// cannot start. Waits for all ranks.
std::unique_ptr<Bootstrap> make_mpi_bootstrap();

}  // namespace gemmad
