#include "scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "link.h"

namespace stopwise {

namespace {

// Values farther than this multiple of the 5–95 % range outside of it count as outliers, so that
// -999999 for "unknown" does not determine the scale.
constexpr double kLow = 0.05, kHigh = 0.95, kFar = 10.0;
constexpr double kConstant = 1e-9;  // relative deviations below this are rounding errors

// Linear interpolation of a quantile in sorted numbers, as in numpy.
double quantile(const std::vector<double>& sorted, double share) {
    const double index = static_cast<double>(sorted.size() - 1) * share;
    const auto before = static_cast<std::size_t>(index);
    const double low = sorted[before], high = sorted[std::min(before + 1, sorted.size() - 1)];
    const double weight = index - static_cast<double>(before), difference = high - low;
    return weight >= 0.5 ? high - difference * (1.0 - weight) : low + difference * weight;
}

// The maximum and minimum of two numbers; NaN if either is NaN.
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }
double smaller(double a, double b) { return a < b || std::isnan(a) ? a : b; }

struct Column {
    double center, scale;
    bool two_valued;
};

Column fit_column(std::vector<double> values) {
    const auto n = static_cast<double>(values.size());
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double low = quantile(sorted, kLow), high = quantile(sorted, kHigh);
    const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    const double room = high > low ? kFar * (high - low) : kInfinity;
    double sum = -0.0;  // the neutral element: 0.0 would change a sum of -0.0
    double squares = 0.0, largest = 0.0;
    for (double& x : values) {
        x = smaller(larger(x, low - room), high + room);
        sum += x;
        largest = larger(std::fabs(x), largest);
    }
    const double mean = sum / n;
    for (const double x : values) squares += (x - mean) * (x - mean);
    const double deviation = std::sqrt(squares / n);
    const bool usable =
        deviation > kConstant * (1.0 + largest) && std::isfinite(mean + deviation);
    return {std::isfinite(mean) ? mean : 0.0, usable ? deviation : 1.0, distinct <= 2};
}

}  // namespace

Scaling fit_scaling(const double* contexts, std::size_t n, std::size_t dim) {
    Scaling scaling;
    std::vector<double> values(n);
    for (std::size_t c = 0; c < dim; ++c) {
        for (std::size_t t = 0; t < n; ++t) values[t] = contexts[t * dim + c];
        const Column column = fit_column(values);
        scaling.center.push_back(column.center);
        scaling.scale.push_back(column.scale);
        if (column.two_valued) scaling.two_valued.push_back(c);
    }
    return scaling;
}

}  // namespace stopwise
