// A value that threads share: a mutex gives every call its turn.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace stopwise {

template <class T>
struct Locked {
    explicit Locked(T shared) : value(std::move(shared)) {}

    // Call ``go`` alone. A thread that waits for its turn does not hold the interpreter.
    template <class Go>
    auto short_call(const Go& go) {
        std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
        if (!lock.owns_lock()) {
            nanobind::gil_scoped_release released;
            lock.lock();
        }
        return go();
    }

    // The same for work that takes long: the interpreter is free from before to after it.
    template <class Go>
    auto long_call(const Go& go) {
        nanobind::gil_scoped_release released;  // taken back last, without holding the mutex
        std::lock_guard<std::mutex> lock(mutex);
        return go();
    }

    // The same for work that may take long.
    template <class Go>
    auto call(const Go& go) {
        return slow ? long_call(go) : short_call(go);
    }

    T value;
    std::mutex mutex;
    std::atomic<bool> slow{false};  // whether even a single round may take long
};

}  // namespace stopwise
