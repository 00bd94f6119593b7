/*!
 * @file plinth_random.hpp
 * @brief Generators and random fills in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_RANDOM_HPP
#define PLINTH_RANDOM_HPP

#include "plinth_core.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! The state of a generator: seed and offset, as in PyTorch. */
using RngState = std::array<std::uint8_t, PLINTH_RNG_STATE_SIZE>;

inline void manual_seed(std::uint64_t seed) { check(plinth_manual_seed(seed)); }
inline void manual_seed_all(std::uint64_t seed) { check(plinth_manual_seed_all(seed)); }
inline void seed() { check(plinth_seed()); }
inline void seed_all() { check(plinth_seed_all()); }
inline std::uint64_t initial_seed() { return detail::output<std::uint64_t>(plinth_initial_seed); }
inline RngState rng_state(std::int32_t device = -1) {
  RngState state{};
  check(plinth_get_rng_state(device, state.data()));
  return state;
}
inline void set_rng_state(const RngState &state, std::int32_t device = -1) {
  check(plinth_set_rng_state(device, state.data()));
}

/*! The states of the generators of all devices. */
inline std::vector<RngState> rng_state_all() {
  const std::int32_t count = device_count();
  std::vector<RngState> states(static_cast<std::size_t>(count));
  check(plinth_get_rng_state_all(static_cast<std::uint8_t *>(static_cast<void *>(states.data())), count));
  return states;
}
/*! Sets the states of the first devices. */
inline void set_rng_state_all(const std::vector<RngState> &states) {
  check(plinth_set_rng_state_all(static_cast<const std::uint8_t *>(static_cast<const void *>(states.data())),
                                 static_cast<std::int32_t>(states.size())));
}

/*! A non-owning view of a generator; default-constructed, it stands for the default generator of the tensor's
 *  device. */
class GeneratorView {
 public:
  GeneratorView() noexcept = default;
  explicit GeneratorView(plinth_generator_t generator) noexcept : generator_(generator) {}

  plinth_generator_t get() const noexcept { return generator_; }

  std::int32_t device() const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_generator_device(generator_, out); });
  }
  void manual_seed(std::uint64_t seed) const { check(plinth_generator_manual_seed(generator_, seed)); }
  /*! Seeds the generator from the operating system, and returns the seed. */
  std::uint64_t seed() const {
    return detail::output<std::uint64_t>([&](std::uint64_t *out) { return plinth_generator_seed(generator_, out); });
  }
  std::uint64_t initial_seed() const {
    return detail::output<std::uint64_t>(
        [&](std::uint64_t *out) { return plinth_generator_initial_seed(generator_, out); });
  }
  RngState state() const {
    RngState state{};
    check(plinth_generator_get_state(generator_, state.data()));
    return state;
  }
  void set_state(const RngState &state) const {
    check(plinth_generator_set_state(generator_, state.data(), state.size()));
  }
  std::uint64_t offset() const {
    return detail::output<std::uint64_t>(
        [&](std::uint64_t *out) { return plinth_generator_get_offset(generator_, out); });
  }
  void set_offset(std::uint64_t offset) const { check(plinth_generator_set_offset(generator_, offset)); }
  /*! Shares the seed and offset of another generator in place of its own. */
  void graphsafe_set_state(GeneratorView shared) const {
    check(plinth_generator_graphsafe_set_state(generator_, shared.generator_));
  }
  /*! Reserves random numbers for a kernel; see plinth_generator_philox_state. */
  plinth_philox_state_t philox_state(std::uint64_t increment) const {
    return detail::output<plinth_philox_state_t>(
        [&](plinth_philox_state_t *out) { return plinth_generator_philox_state(generator_, increment, out); });
  }

 protected:
  plinth_generator_t generator_ = nullptr;
};

inline GeneratorView default_generator(std::int32_t device = -1) {
  return GeneratorView(detail::output<plinth_generator_t>(
      [&](plinth_generator_t *out) { return plinth_default_generator(device, out); }));
}

/*! A generator, destroyed by the destructor. Movable; clone() creates a copy with the same state. */
class Generator : public GeneratorView {
 public:
  explicit Generator(std::int32_t device = -1)
      : GeneratorView(detail::output<plinth_generator_t>(
            [&](plinth_generator_t *out) { return plinth_generator_create(device, out); })) {}

  ~Generator() { static_cast<void>(plinth_generator_destroy(generator_)); }
  Generator(Generator &&other) noexcept : GeneratorView(std::exchange(other.generator_, nullptr)) {}
  Generator &operator=(Generator &&other) noexcept {
    std::swap(generator_, other.generator_);
    return *this;
  }
  Generator(const Generator &) = delete;
  Generator &operator=(const Generator &) = delete;

  Generator clone() const {
    return Generator(detail::output<plinth_generator_t>(
        [&](plinth_generator_t *out) { return plinth_generator_clone(generator_, out); }), Owned());
  }

  /*! A generator that shares this one's seed and offset. */
  Generator graphsafe_get_state() const {
    return Generator(detail::output<plinth_generator_t>(
        [&](plinth_generator_t *out) { return plinth_generator_graphsafe_get_state(generator_, out); }), Owned());
  }

 private:
  struct Owned {};
  Generator(plinth_generator_t generator, Owned) noexcept : GeneratorView(generator) {}
};

inline void uniform(DLTensor &tensor, double low = 0.0, double high = 1.0, GeneratorView generator = {},
                    StreamView stream = StreamView::current()) {
  check(plinth_uniform(&tensor, low, high, generator.get(), stream.get()));
}
inline void normal(DLTensor &tensor, double mean = 0.0, double std = 1.0, GeneratorView generator = {},
                   StreamView stream = StreamView::current()) {
  check(plinth_normal(&tensor, mean, std, generator.get(), stream.get()));
}
inline void log_normal(DLTensor &tensor, double mean = 1.0, double std = 2.0, GeneratorView generator = {},
                       StreamView stream = StreamView::current()) {
  check(plinth_log_normal(&tensor, mean, std, generator.get(), stream.get()));
}
inline void exponential(DLTensor &tensor, double lambda = 1.0, GeneratorView generator = {},
                        StreamView stream = StreamView::current()) {
  check(plinth_exponential(&tensor, lambda, generator.get(), stream.get()));
}
inline void cauchy(DLTensor &tensor, double median = 0.0, double sigma = 1.0, GeneratorView generator = {},
                   StreamView stream = StreamView::current()) {
  check(plinth_cauchy(&tensor, median, sigma, generator.get(), stream.get()));
}
inline void geometric(DLTensor &tensor, double p, GeneratorView generator = {}, StreamView stream = StreamView::current()) {
  check(plinth_geometric(&tensor, p, generator.get(), stream.get()));
}
inline void bernoulli(DLTensor &tensor, double p = 0.5, GeneratorView generator = {},
                      StreamView stream = StreamView::current()) {
  check(plinth_bernoulli(&tensor, p, generator.get(), stream.get()));
}
/*! Bernoulli numbers with a probability for each element. */
inline void bernoulli(DLTensor &tensor, const DLTensor &p, GeneratorView generator = {},
                      StreamView stream = StreamView::current()) {
  check(plinth_bernoulli_tensor(&tensor, &p, generator.get(), stream.get()));
}
inline void random(DLTensor &tensor, GeneratorView generator = {}, StreamView stream = StreamView::current()) {
  check(plinth_random(&tensor, generator.get(), stream.get()));
}
/*! Integers in [low, high), or from low on with PLINTH_RANDOM_TO_LARGEST as high. */
inline void random_range(DLTensor &tensor, std::int64_t low, std::int64_t high, GeneratorView generator = {},
                         StreamView stream = StreamView::current()) {
  check(plinth_random_range(&tensor, low, high, generator.get(), stream.get()));
}
inline void randperm(DLTensor &tensor, GeneratorView generator = {}, StreamView stream = StreamView::current()) {
  check(plinth_randperm(&tensor, generator.get(), stream.get()));
}

}  // namespace plinth

#endif

#endif /* PLINTH_RANDOM_HPP */
