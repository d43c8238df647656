// A value that threads share, protected by a mutex.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace stopwise {

template <class T>
struct Locked {
    explicit Locked(T shared) : value(std::move(shared)) {}

    // Call ``function`` with the lock. Releases the GIL only while waiting for the lock.
    template <class Function>
    auto short_call(const Function& function) {
        std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
        if (!lock.owns_lock()) {
            nanobind::gil_scoped_release released;
            lock.lock();
        }
        return function();
    }

    // The same for long work: releases the GIL for the complete call.
    template <class Function>
    auto long_call(const Function& function) {
        nanobind::gil_scoped_release released;  // reacquired last, after the mutex is released
        std::lock_guard<std::mutex> lock(mutex);
        return function();
    }

    // The same for work that takes long if `slow`.
    template <class Function>
    auto call(const Function& function) {
        return slow ? long_call(function) : short_call(function);
    }

    T value;
    std::mutex mutex;
    std::atomic<bool> slow{false};  // whether a single round takes long
};

}  // namespace stopwise
