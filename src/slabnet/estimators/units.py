"""What an estimator says of its network to functions that read networks: names of inputs, and the units of a table."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from slabnet.core.records import Selection
from slabnet.estimators.frames import ReadsFrames
from slabnet.estimators.scaling import Scaling
from slabnet.model.networks import Network
from slabnet.model.wrapped import Wrapped, Wraps


class KnowsUnits(ReadsFrames, Wraps):
    """The part of an estimator that gives its network with the units around it."""

    network_: Network
    scaling_x_: Scaling
    selection_: Selection | None

    def wrapped(self) -> Wrapped:
        check_is_fitted(self)
        x, y = self.scaling_x_, self._scale_of_outputs()
        units = (x.centre, x.scale, y.centre, y.scale)
        groups = self._groups_of_inputs or self._named_groups()
        masks = None if self.selection_ is None else self.selection_.masks
        return Wrapped(self.network_, tuple(self._input_names()), *units, groups, masks)

    def _scale_of_outputs(self) -> Scaling:
        """The unit of each output, and what is its zero."""
        return Scaling.none(self.network_.outputs)
