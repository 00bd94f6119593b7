// A pipeline over two streams, in C++: one block of data is copied to the device while the previous one is processed.
//
//   g++ -std=c++17 02-pipeline.cpp -lplinth && PLINTH_DEVICE=host ./a.out
//
// A fill stands in for the computation; replace it by kernel<<<..., compute.get()>>>.
#include <plinth.hpp>

#include <array>
#include <cstdio>

namespace {

constexpr std::size_t kBlock = 8u << 20;
constexpr int kBlocks = 8;

// A slot for a block: memory on both sides, and two events that order its uses.
struct Slot {
  plinth::PinnedMemory host = plinth::pinned_malloc(kBlock);
  plinth::DeviceMemory device = plinth::device_malloc(kBlock);
  plinth::Event copied, used;
};

float run() {
  const plinth::Stream transfer, compute(-1, -1);
  std::array<Slot, 2> slots;
  plinth::Event start(plinth::EventFlags::timing), end(plinth::EventFlags::timing);

  start.record(transfer);
  for (int block = 0; block < kBlocks; block++) {
    Slot &slot = slots[static_cast<std::size_t>(block) % slots.size()];
    // The slot is free after its previous block was used. Waiting for an event that was never recorded returns at once,
    // so the first round needs no special case.
    transfer.wait(slot.used);
    plinth::memcpy(slot.device.get(), slot.host.get(), kBlock, transfer);
    transfer.record(slot.copied);

    compute.wait(slot.copied);
    plinth::memset(slot.device.get(), static_cast<std::uint8_t>(block), kBlock, compute);
    compute.record(slot.used);
  }
  end.record(compute);
  end.synchronize();
  return start.elapsed_time(end);
}

}  // namespace

int main() try {
  std::printf("%s: ", plinth::device_name().c_str());
  run();  // warms up: the first run includes initialization
  const float milliseconds = run();
  std::printf("%d blocks of %zu MiB in %.2f ms, %.1f GB/s\n", kBlocks, kBlock >> 20, static_cast<double>(milliseconds),
              static_cast<double>(kBlocks) * static_cast<double>(kBlock) / static_cast<double>(milliseconds) / 1e6);
  return 0;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
