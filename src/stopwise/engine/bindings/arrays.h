// NumPy array types and checks shared by the bindings.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace stopwise {

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using NumpyNumbers = nb::ndarray<nb::numpy, double>;
using Numbers1 = Vector<const double>;

inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

template <class Array, class... Sizes>
bool has_shape(const Array& array, Sizes... sizes) {
    std::size_t axis = 0;
    return ((array.shape(axis++) == sizes) && ...);
}

inline NumpyNumbers numpy(std::vector<double> values, std::initializer_list<std::size_t> shape) {
    auto* owned = new std::vector<double>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return NumpyNumbers(owned->data(), shape, owner);
}

}  // namespace stopwise
