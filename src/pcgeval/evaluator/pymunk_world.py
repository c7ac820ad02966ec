"""A level as a pymunk space that behaves like Box2D 2.3 inside Unity, the engine of the official evaluator.

Comments say how a setting of Box2D is expressed in pymunk.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.packages import packages_for
from pcgeval.evaluator import world as unity
from pcgeval.evaluator.world import COLLIDERS, World
from pcgeval.formats.params import PhysicsParams
from pcgeval.levels.blocks import Block

with packages_for("the simulation of a level"):
    import pymunk
    from pymunk.batch import BodyFields, Buffer, get_space_bodies

SKIN = 0.01  # Box2D's polygon radius: colliders meet this far outside their outline
FLAT_SKIN = 0.005  # the part of a block's skin that is added to its flat sides, see `_body`
SLOP = 0.005  # Box2D's linear slop: overlap of skins that is left alone
BAUMGARTE = 0.2  # share of the remaining overlap that Box2D removes in one step
STEPS_BETWEEN_CORRECTIONS = 2  # of angular velocities: see `_give_back_turning`
ITERATIONS = 55  # 100, as in Box2D, come no nearer to it: bench/pymunk_settings.py
SLEEP_SECONDS = 0.5
SLEEP_SPEED = 0.01  # m/s
SLEEP_TURN = math.radians(2)  # per second
_PLACES = BodyFields.BODY_ID | BodyFields.POSITION | BodyFields.ANGLE
_TURNING = BodyFields.BODY_ID | BodyFields.ANGULAR_VELOCITY
_set_turning = vars(pymunk.Body)["angular_velocity"].fset  # an assignment looks at the name first, which takes longer


class PymunkWorld(World):
    """A level in a pymunk space."""

    def __init__(self, blocks: Sequence[Block], physics: PhysicsParams) -> None:
        super().__init__(blocks, physics)
        self._space = space = pymunk.Space()
        drag = 1 + physics.step * unity.LINEAR_DRAG
        space.gravity = (0.0, -unity.GRAVITY / drag)  # Box2D drags what gravity added in the same step, pymunk does not
        space.damping = drag ** (-1 / physics.step)
        space.iterations = physics.iterations or ITERATIONS
        space.collision_slop = SLOP
        space.collision_bias = (1 - BAUMGARTE) ** (1 / physics.step)
        space.sleep_time_threshold = SLEEP_SECONDS
        space.idle_speed_threshold = SLEEP_SPEED
        space.add(_ground(space))
        self._bodies = [_body(block) for block in blocks]
        for body in self._bodies:
            space.add(body, *body.shapes)
        self._living = list(self._bodies)
        self._steps = 0
        self._turning_given_back = (drag / (1 + physics.step * unity.ANGULAR_DRAG)) ** STEPS_BETWEEN_CORRECTIONS
        self._index_of = {body: index for index, body in enumerate(self._bodies)}
        self._body_of_id = {body.id: body for body in self._bodies}
        self._places = np.array([(block.x, block.y, math.radians(block.rotation)) for block in blocks]).reshape(-1, 3)
        self._order: tuple[list[int], list[int], list[int]] = ([], [], [])  # ids, rows and blocks of a reading
        self._buffer = Buffer()
        space.on_collision(begin=self._begin_contact)

    def advance(self) -> None:
        """Simulate one step, and remove the blocks that died in it."""
        self._space.step(self.step)
        for index in self.dying:
            body = self._bodies[index]
            self._places[index] = *body.position, body.angle
            self._space.remove(body, *body.shapes)
            self._living.remove(body)
        self.dying.clear()
        self._steps += 1
        if self._steps % STEPS_BETWEEN_CORRECTIONS == 0:
            self._give_back_turning()

    @property
    def asleep(self) -> bool:
        """Whether every living block sleeps."""
        return all(body.is_sleeping for body in self._living)

    @property
    def places(self) -> NDArray[np.float64]:
        """The x, y and rotation of each block, shape (blocks, 3)."""
        ids = self._read(_PLACES)
        places = np.frombuffer(self._buffer.float_buf()).reshape(-1, 3)
        if ids != self._order[0]:  # which changes as blocks fall asleep
            rows = [row for row, body_id in enumerate(ids) if body_id in self._body_of_id]  # without the ground
            self._order = ids, rows, [self._index_of[self._body_of_id[ids[row]]] for row in rows]
        _, rows, indices = self._order
        self._places[indices] = places[rows]
        return self._places.copy()

    def _give_back_turning(self) -> None:
        """Correct angular velocities: pymunk has one drag for both motions, which slows turning too much.

        Slow turning stays: setting a velocity wakes a body, and Box2D lets it sleep below this speed.
        """
        ids = self._read(_TURNING)
        for body_id, speed in zip(ids, memoryview(self._buffer.float_buf()).cast("d").tolist(), strict=True):
            if abs(speed) > SLEEP_TURN:
                body = self._body_of_id[body_id]
                if not body.is_sleeping:
                    _set_turning(body, speed * self._turning_given_back)

    def _read(self, fields: BodyFields) -> list[int]:
        """Read fields of all bodies in the space, the ground among them, and return the bodies' ids."""
        self._buffer.clear()
        get_space_bodies(self._space, fields, self._buffer)
        return memoryview(self._buffer.int_buf()).cast("P").tolist()

    def _begin_contact(self, arbiter: pymunk.Arbiter, _space: pymunk.Space, _data: object) -> None:
        """Take the relative speed of a new contact from the life of both bodies."""
        first, second = arbiter.bodies
        speed = abs(first.velocity - second.velocity)
        for body in (first, second):
            index = self._index_of.get(body)
            if index is not None:
                self.damage(index, speed)


def _ground(space: pymunk.Space) -> pymunk.Shape:
    ends = (-unity.GROUND_HALF_WIDTH, unity.GROUND_TOP), (unity.GROUND_HALF_WIDTH, unity.GROUND_TOP)
    ground = pymunk.Segment(space.static_body, *ends, radius=SKIN)
    # pymunk multiplies the frictions of a pair, where Box2D takes sqrt(f1 * f2)
    ground.friction = math.sqrt(unity.BLOCK_FRICTION * unity.GROUND_FRICTION) / math.sqrt(unity.BLOCK_FRICTION)
    return ground


def _body(block: Block) -> pymunk.Body:
    """Return a block's body with its collider.

    In Box2D a contact reaches two skins past the end of one touching side, that of the older body; in pymunk it ends
    with the flat part of the shorter side. A skin that is half flat lies between the two.
    """
    size = COLLIDERS[block.type]
    mass = unity.DENSITY * size.width * size.height
    body = pymunk.Body(mass, pymunk.moment_for_box(mass, (size.width, size.height)))
    body.position = (block.x, block.y)
    body.angle = math.radians(block.rotation)
    flat_size = size.width + 2 * FLAT_SKIN, size.height + 2 * FLAT_SKIN
    shape = pymunk.Poly.create_box(body, flat_size, radius=SKIN - FLAT_SKIN)
    shape.friction = math.sqrt(unity.BLOCK_FRICTION)
    return body
