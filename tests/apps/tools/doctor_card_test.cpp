// The kernel's answers about flow control, byte by byte.
#include <hyperframes/apps/tools/doctor/card.hpp>

#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

using namespace hyperframes::tools::doctor;

namespace {

using Bytes = std::vector<std::byte>;

void add(Bytes& to, const void* bytes, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(bytes);
  to.insert(to.end(), from, from + size);
  to.resize((to.size() + 3) / 4 * 4);
}

Bytes attribute(unsigned type, const Bytes& content) {
  Bytes bytes;
  const nlattr head{static_cast<std::uint16_t>(sizeof(nlattr) + content.size()),
                    static_cast<std::uint16_t>(type)};
  add(bytes, &head, sizeof head);
  add(bytes, content.data(), content.size());
  return bytes;
}

Bytes answer_with(std::uint8_t enabled) {
  ieee_pfc pfc{};
  pfc.pfc_cap = 8;
  pfc.pfc_en = enabled;
  Bytes content;
  add(content, &pfc, sizeof pfc);
  Bytes objects = attribute(DCB_ATTR_IEEE_ETS, Bytes(10));
  const Bytes object = attribute(DCB_ATTR_IEEE_PFC, content);
  objects.insert(objects.end(), object.begin(), object.end());
  Bytes body;
  const dcbmsg what{.dcb_family = 0, .cmd = DCB_CMD_IEEE_GET, .dcb_pad = 0};
  add(body, &what, sizeof what);
  for (const Bytes& part :
       {attribute(DCB_ATTR_IFNAME, Bytes(5)), attribute(DCB_ATTR_IEEE | NLA_F_NESTED, objects)})
    body.insert(body.end(), part.begin(), part.end());
  nlmsghdr head{};
  head.nlmsg_type = RTM_GETDCB;
  head.nlmsg_len = static_cast<std::uint32_t>(sizeof head + body.size());
  Bytes answer;
  add(answer, &head, sizeof head);
  answer.insert(answer.end(), body.begin(), body.end());
  return answer;
}

}  // namespace

TEST_CASE("the priorities with flow control are read from the kernel's answer") {
  CHECK(read_priorities(answer_with(0)) == std::vector<unsigned>{});
  CHECK(read_priorities(answer_with(0b1000)) == std::vector<unsigned>{3});
  CHECK(read_priorities(answer_with(0b10000101)) == std::vector<unsigned>{0, 2, 7});
}

TEST_CASE("an answer that is cut short, or is an error, says nothing") {
  const Bytes whole = answer_with(8);
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(!read_priorities(std::span(whole).first(size)));
  for (std::size_t at = 0; at < whole.size(); ++at) {  // and none is read beyond its end
    Bytes spoiled = whole;
    spoiled[at] = std::byte{0xff};
    (void)read_priorities(spoiled);
  }
  Bytes refused = whole;
  const std::uint16_t error = NLMSG_ERROR;
  std::memcpy(refused.data() + offsetof(nlmsghdr, nlmsg_type), &error, sizeof error);
  CHECK(!read_priorities(refused));
}

TEST_CASE("a question names its interface, and interfaces that there are not have no answer") {
  const Bytes question = ask_for_priorities("eth2");
  const std::string text(reinterpret_cast<const char*>(question.data()), question.size());
  CHECK(text.find("eth2") != text.npos);
  const std::string none = "no-such-card", endless(100, 'x');
  for (const std::string& name : {none, endless}) {
    CHECK(!priorities_of(name));
    CHECK(!rings_of(name));
    CHECK(!queues_of(name));
    CHECK(!pause_of(name));
  }
}
