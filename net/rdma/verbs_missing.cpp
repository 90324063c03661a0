#include <hyperframes/net/rdma/verbs.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::net::detail {

VerbsLibrary& system_verbs() {
  throw Error(Errc::unsupported, "use RDMA", "this build has no RDMA: libibverbs-dev was missing",
              "install libibverbs-dev and build again");
}

}  // namespace hyperframes::net::detail
