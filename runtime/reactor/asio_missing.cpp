// Stands in for asio.cpp where asio was not found.
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/reactor/asio.hpp>

namespace hyperframes {

bool has_asio_reactor() noexcept { return false; }

std::unique_ptr<Reactor> make_asio_reactor(AsioReactorOptions) {
  throw Error(Errc::unsupported, "start the asio driver", "this build has none",
              "install libasio-dev, configure again and rebuild");
}

}  // namespace hyperframes
