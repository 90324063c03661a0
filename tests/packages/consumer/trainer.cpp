// A program that trains on a parameter server of its own making, as far as that needs no server.
#include <hyperframes/apps/dataset/reader.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/model.hpp>
#include <iostream>

int main() {
  try {
    const auto config = hf::ps::ModelConfig::parse(
        "model: logistic_regression\nlabel: liked\nfields:\n  - name: movie\n");
    std::cout << "width " << config.width() << " of " << config.fields.size() << " field\n";
  } catch (const hf::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
