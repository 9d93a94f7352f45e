//! Whether a series grows.

/// The Theil-Sen slope of `(x, y)` points: the median of the slopes of all pairs, which outliers hardly move. `None`
/// for fewer than two distinct `x`.
pub fn theil_sen_slope(points: &[(f64, f64)]) -> Option<f64> {
    // Quadratic in the points: a long series is thinned out evenly first.
    const MAX_POINTS: usize = 500;
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    let points: Vec<_> = points.iter().step_by(step).collect();
    let mut slopes: Vec<f64> = points
        .iter()
        .enumerate()
        .flat_map(|(i, a)| points[i + 1..].iter().map(move |b| (b.1 - a.1) / (b.0 - a.0)))
        .filter(|slope| slope.is_finite())
        .collect();
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let middle = slopes.len() / 2;
    Some(if slopes.len() % 2 == 1 { slopes[middle] } else { (slopes[middle - 1] + slopes[middle]) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope_whatever_a_few_outliers_say() {
        let mut line: Vec<_> = (0..30).map(|x| (f64::from(x), 5.0 + 2.0 * f64::from(x))).collect();
        assert_eq!(theil_sen_slope(&line), Some(2.0));
        for outlier in [3, 11, 25] {
            line[outlier].1 = 1e6;
        }
        assert!((theil_sen_slope(&line).unwrap() - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_saw_tooth_does_not_grow() {
        let saw: Vec<_> = (0..600).map(|x| (f64::from(x), f64::from(x % 10))).collect();
        assert!(theil_sen_slope(&saw).unwrap().abs() < 0.02);
    }

    #[test]
    fn too_few_points_have_no_slope() {
        assert_eq!(theil_sen_slope(&[]), None);
        assert_eq!(theil_sen_slope(&[(1.0, 1.0)]), None);
        assert_eq!(theil_sen_slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
