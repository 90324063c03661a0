#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/tls/authority.hpp>
#include <hyperframes/runtime/error.hpp>

#include "certificates.hpp"

using namespace std::chrono;
using namespace hf::net;
using net_test::Certificates;

namespace {

std::string refusal(const Issued& authority, const CertificateRequest& request) {
  try {
    issue(authority, request);
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::invalid_argument));
    return error.what();
  }
  return "none";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a certificate says whose it is, for which hosts, and from when to when") {
  const Issued authority = Certificates::authority("an authority");
  CertificateRequest request{.name = "node 1", .hosts = {"node-1.example.org", "10.0.0.7", "::1"}};
  request.from = sys_days(2026y / January / 2);
  request.lifetime = days(30);
  const Issued node = issue(authority, request);
  CHECK(describe_certificate(node.certificate) ==
        "'CN=node 1' (for node-1.example.org, 10.0.0.7, ::1; from 2026-01-02 00:00:00 UTC to "
        "2026-02-01 00:00:00 UTC)");
  CHECK(node.key.starts_with("-----BEGIN PRIVATE KEY-----"));
  CHECK(!contains(node.certificate, "PRIVATE"));
  CHECK(issue(authority, request).key != node.key);
}

TEST_CASE("what can't be in a certificate is refused by its name") {
  const Issued authority = Certificates::authority("an authority");
  const Issued node = issue(authority, {.name = "node"});
  CHECK(contains(refusal(authority, {.name = ""}), "1 to 64"));
  CHECK(contains(refusal(authority, {.name = "a/b"}), "a/b"));
  CHECK(contains(refusal(authority, {.name = std::string(65, 'a')}), "1 to 64"));
  CHECK(contains(refusal(authority, {.name = "a", .hosts = {"a b"}}), "'a b'"));
  CHECK(contains(refusal(authority, {.name = "a", .hosts = {"a,DNS:b"}}), "a,DNS:b"));
  CHECK(contains(refusal(authority, {.name = "a", .hosts = {"10.0.0.7:6000"}}), "without a port"));
  CHECK(contains(refusal(authority, {.name = "a", .may_accept = false, .may_connect = false}),
                 "neither end"));
  CHECK(contains(refusal(node, {.name = "a"}), "no authority's certificate"));
  CHECK(contains(refusal({authority.certificate, node.key}, {.name = "a"}), "another certificate"));
  CHECK(contains(refusal({"nothing", node.key}, {.name = "a"}), "no certificate in PEM form"));
  CHECK(contains(refusal({authority.certificate, "nothing"}, {.name = "a"}), "no private key"));
  CHECK(contains(refusal(authority, {.name = "a", .lifetime = days(5000)}),
                 "ends before the certificate would"));
}
