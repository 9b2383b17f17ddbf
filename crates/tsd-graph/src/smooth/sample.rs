//! The points that are smoothed.

/// Seconds since the begin of the graph, and value.
pub(crate) type Sample = (f64, f64);

/// Points of a series, which can be read more than once. NaN has been left out.
pub(crate) trait SampleSource {
    /// The points in time order.
    fn samples(&self) -> Box<dyn Iterator<Item = Sample> + '_>;
}

impl<I: Iterator<Item = Sample> + Clone> SampleSource for I {
    fn samples(&self) -> Box<dyn Iterator<Item = Sample> + '_> {
        Box::new(self.clone())
    }
}
