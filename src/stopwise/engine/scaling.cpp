#include "scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "link.h"

namespace stopwise {

namespace {

// Beyond the 5 % and 95 % quantiles by so often their distance, a number is taken for a mistake: a
// -999999 for "unknown" does not set the scale.
constexpr double kLow = 0.05, kHigh = 0.95, kFar = 10.0;
constexpr double kConstant = 1e-9;  // deviations below this share of the numbers are rounding errors

// The quantile between the two nearest of sorted numbers, by whichever of two formulas is more exact.
double quantile(const std::vector<double>& sorted, double share) {
    const double index = static_cast<double>(sorted.size() - 1) * share;
    const auto before = static_cast<std::size_t>(index);
    const double low = sorted[before], high = sorted[std::min(before + 1, sorted.size() - 1)];
    const double weight = index - static_cast<double>(before), difference = high - low;
    return weight >= 0.5 ? high - difference * (1.0 - weight) : low + difference * weight;
}

// The larger and the smaller of two numbers; NaN if either is.
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
    double sum = -0.0;  // which changes no sum: 0.0 would, of -0.0 alone
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
