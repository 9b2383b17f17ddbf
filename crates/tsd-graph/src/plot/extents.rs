//! The least and greatest values of the shown points, for each y axis.

use super::{
    contents::{Plot, YAxis},
    series_positions::for_each_value,
};
use crate::pace::Pace;

/// Extents of the values of both axes; `None` for an axis without values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AxisExtents {
    pub(crate) left: Option<(f64, f64)>,
    pub(crate) right: Option<(f64, f64)>,
}

impl AxisExtents {
    /// Extents of all series.
    pub(crate) fn of(plot: &Plot, pace: &Pace<'_>) -> Self {
        let mut extents = Self::default();
        for series in &plot.series {
            let (extent, axis) = match series.axis {
                YAxis::Left => (&mut extents.left, &plot.options.y),
                YAxis::Right => (&mut extents.right, &plot.options.y2),
            };
            for_each_value(plot, series, pace, |_, value| {
                if value.is_finite() && (!axis.is_log || value > 0.0) {
                    let (least, greatest) = extent.get_or_insert((value, value));
                    *least = least.min(value);
                    *greatest = greatest.max(value);
                }
            });
        }
        extents
    }
}
