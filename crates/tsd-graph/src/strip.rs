//! Reduces the points of a series to the positions that a picture can show.
//!
//! In a line, only the first, least, greatest and last point of a column of pixels are visible. So a series of any
//! length becomes at most four positions per column.

/// A position on the picture, in pixels.
pub(crate) type Position = (f32, f32);

/// The positions of a column.
#[derive(Clone, Copy, Debug)]
struct Column {
    number: i64,
    first: Position,
    last: Position,
    /// The uppermost and the lowest position, with their order of arrival.
    upper: (Position, u64),
    lower: (Position, u64),
    count: u64,
}

/// Reduces positions to strips, segments of a line without gaps. A strip ends at a gap of at least two pixels, or
/// at [`LONG_STRIP`] positions.
#[derive(Debug)]
pub(crate) struct StripBuilder<F> {
    emit: F,
    strip: Vec<Position>,
    column: Option<Column>,
    /// A value is missing after the last position.
    gap: bool,
}

/// Positions after which a strip is emitted; the next strip continues it.
const LONG_STRIP: usize = 2_048;

impl<F: FnMut(&[Position])> StripBuilder<F> {
    /// Calls `emit` with the positions of each strip.
    pub(crate) fn new(emit: F) -> Self {
        Self { emit, strip: Vec::new(), column: None, gap: false }
    }

    /// Adds the next position, at or right of the previous position.
    pub(crate) fn push(&mut self, position: Position) {
        let number = position.0.floor() as i64;
        if let Some(column) = &mut self.column {
            let is_visible_gap = self.gap && number > column.number + 1;
            self.gap = false;
            if column.number == number {
                column.add(position);
                return;
            }
            self.close_column();
            if is_visible_gap {
                self.close_strip();
            }
        }
        self.column = Some(Column::new(number, position));
    }

    /// Records that a value is missing.
    pub(crate) fn push_gap(&mut self) {
        self.gap = true;
    }

    /// Emits the remaining positions.
    pub(crate) fn finish(mut self) {
        self.close_column();
        self.close_strip();
    }

    fn close_column(&mut self) {
        let Some(column) = self.column.take() else { return };
        column.write(&mut self.strip);
        if self.strip.len() >= LONG_STRIP {
            let last = self.strip.last().copied();
            self.close_strip();
            self.strip.extend(last);
        }
    }

    fn close_strip(&mut self) {
        if !self.strip.is_empty() {
            (self.emit)(&self.strip);
            self.strip.clear();
        }
    }
}

impl Column {
    const fn new(number: i64, position: Position) -> Self {
        Self {
            number,
            first: position,
            last: position,
            upper: (position, 0),
            lower: (position, 0),
            count: 1,
        }
    }

    fn add(&mut self, position: Position) {
        if position.1 < self.upper.0.1 {
            self.upper = (position, self.count);
        }
        if position.1 > self.lower.0.1 {
            self.lower = (position, self.count);
        }
        self.last = position;
        self.count += 1;
    }

    fn write(&self, out: &mut Vec<Position>) {
        let (mut second, mut third) = (self.upper, self.lower);
        if second.1 > third.1 {
            std::mem::swap(&mut second, &mut third);
        }
        for position in [self.first, second.0, third.0, self.last] {
            if out.last() != Some(&position) {
                out.push(position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strips(positions: &[Option<Position>]) -> Vec<Vec<Position>> {
        let mut strips = Vec::new();
        let mut builder = StripBuilder::new(|strip: &[Position]| strips.push(strip.to_vec()));
        for position in positions {
            match position {
                Some(position) => builder.push(*position),
                None => builder.push_gap(),
            }
        }
        builder.finish();
        strips
    }

    #[test]
    fn distant_points_are_kept() {
        let points = [(0.0, 1.0), (10.0, 2.0), (20.0, 3.0)];
        assert_eq!(strips(&points.map(Some)), [points.to_vec()]);
    }

    #[test]
    fn a_column_is_reduced_to_its_extremes_in_order() {
        let column = [(5.0, 3.0), (5.1, 9.0), (5.2, 4.0), (5.3, 1.0), (5.4, 2.0), (5.5, 6.0)];
        let expected = vec![(5.0, 3.0), (5.1, 9.0), (5.3, 1.0), (5.5, 6.0)];
        assert_eq!(strips(&column.map(Some)), [expected]);
    }

    #[test]
    fn a_missing_value_is_a_gap_where_it_can_be_seen() {
        let (a, b, c) = ((0.0, 1.0), (10.0, 1.0), (11.0, 1.0));
        assert_eq!(strips(&[Some(a), None, Some(b), None, Some(c)]), [vec![a], vec![b, c]]);
        assert_eq!(strips(&[None, None]), [[]; 0]);
    }

    #[test]
    fn many_points_need_few_positions() {
        let mut positions = 0;
        let mut builder = StripBuilder::new(|strip: &[Position]| positions += strip.len());
        for n in 0..1_000_000_u32 {
            builder.push((n as f32 / 1_000.0, (n % 97) as f32));
        }
        builder.finish();
        assert!((1_000..=4_010).contains(&positions), "{positions}");
    }
}
