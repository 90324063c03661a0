// Certificates for tests, in a folder that goes away.
//
//   Certificates made;
//   options.encryption = made.node({.name = "a", .hosts = {"127.0.0.1"}});
//   options.encryption = made.node({.name = "late", .lifetime = -1h}, made.authority("other"));
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/tls/authority.hpp>
#include <stdexcept>
#include <string>

namespace net_test {

class Certificates {
 public:
  Certificates() {
    std::string name =
        (std::filesystem::temp_directory_path() / "hyperframes-certificates-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    folder_ = name;
    own_ = authority("the authority of this test");
  }
  Certificates(const Certificates&) = delete;
  ~Certificates() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  /// One that ends later than what it issues.
  static hf::net::Issued authority(const std::string& name) {
    hf::net::CertificateRequest request{.name = name};
    request.from -= std::chrono::days(400);
    request.lifetime = std::chrono::days(4000);
    return hf::net::make_authority(request);
  }
  const hf::net::Issued& own_authority() const { return own_; }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }
  /// A node that trusts this folder's authority, with a certificate of that or of another one.
  hf::net::Encryption node(const hf::net::CertificateRequest& request) const {
    return node(request, own_);
  }
  hf::net::Encryption node(const hf::net::CertificateRequest& request,
                           const hf::net::Issued& issuer) const {
    const auto made = hf::net::issue(issuer, request);
    hf::net::Encryption encryption;
    encryption.certificate_file = write(request.name + ".crt", made.certificate);
    encryption.certificate_key_file = write(request.name + ".key", made.key);
    encryption.authority_file = write("ca.crt", own_.certificate);
    return encryption;
  }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  hf::net::Issued own_;
};

}  // namespace net_test
