"""A level as a world of Box2D 2.3, the engine inside the official evaluator.

Box2D's own constants are those of Unity: polygon radius 0.01, linear slop 0.005, velocity threshold 1 m/s, Baumgarte
0.2, sleep after 0.5 s below 0.01 m/s and 2 degrees a second. It computes in 32 bits, so another processor family may
give other bits.
"""

import math
from collections.abc import Sequence

import Box2D
import numpy as np
from numpy.typing import NDArray

from pcgeval.evaluator import world as unity
from pcgeval.evaluator.world import COLLIDERS, World
from pcgeval.formats.params import PhysicsParams
from pcgeval.levels.blocks import Block

ITERATIONS = 100  # for velocities and for positions, as in the official evaluator


class Box2dWorld(World):
    """A level in a Box2D world, stepped as Unity 2019.4 steps it: discrete collision, no sub-steps."""

    def __init__(self, blocks: Sequence[Block], physics: PhysicsParams) -> None:
        super().__init__(blocks, physics)
        self._iterations = physics.iterations or ITERATIONS
        self._world = Box2D.b2World(gravity=(0.0, -unity.GRAVITY), doSleep=True)
        self._world.continuousPhysics = False
        ground = self._world.CreateStaticBody(position=(0.0, unity.GROUND_TOP - 1))
        shape = Box2D.b2PolygonShape(box=(unity.GROUND_HALF_WIDTH, 1.0))  # and not an edge, which has no skin
        ground.CreateFixture(shape=shape, friction=unity.GROUND_FRICTION)
        self._bodies = [self._body(index, block) for index, block in enumerate(blocks)]
        self._living = list(self._bodies)
        self._died_at: dict[int, tuple[float, float, float]] = {}
        self._contacts = _Contacts(self)  # Box2D keeps no reference to it
        self._world.contactListener = self._contacts

    def advance(self) -> None:
        """Simulate one step, and remove the blocks that died in it."""
        self._world.Step(self.step, self._iterations, self._iterations)
        for index in self.dying:
            body = self._bodies[index]
            self._died_at[index] = _place(body)
            self._living.remove(body)
            self._world.DestroyBody(body)
        self.dying.clear()

    @property
    def asleep(self) -> bool:
        """Whether every living block sleeps."""
        return not any(body.awake for body in self._living)

    @property
    def places(self) -> NDArray[np.float64]:
        """The x, y and rotation of each block, shape (blocks, 3)."""
        places = [self._died_at.get(index) or _place(body) for index, body in enumerate(self._bodies)]
        return np.array(places, dtype=np.float64).reshape(-1, 3)

    def _body(self, index: int, block: Block) -> "Box2D.b2Body":
        size = COLLIDERS[block.type]
        body = self._world.CreateDynamicBody(
            position=(block.x, block.y),
            angle=math.radians(block.rotation),
            linearDamping=unity.LINEAR_DRAG,
            angularDamping=unity.ANGULAR_DRAG,
            userData=index,
        )
        box = Box2D.b2PolygonShape(box=(size.width / 2, size.height / 2))
        body.CreateFixture(shape=box, density=unity.DENSITY, friction=unity.BLOCK_FRICTION, restitution=0.0)
        return body


class _Contacts(Box2D.b2ContactListener):  # type: ignore[misc]  # Box2D has no types
    """Takes the relative speed of a new contact from the life of both bodies."""

    def __init__(self, world: Box2dWorld) -> None:
        super().__init__()
        self._world = world

    def BeginContact(self, contact: "Box2D.b2Contact") -> None:  # noqa: N802 - Box2D's name
        """Damage both bodies of a contact, except the ground."""
        first, second = contact.fixtureA.body, contact.fixtureB.body
        speed = (first.linearVelocity - second.linearVelocity).length
        for body in (first, second):
            if body.userData is not None:
                self._world.damage(body.userData, speed)


def _place(body: "Box2D.b2Body") -> tuple[float, float, float]:
    return body.position.x, body.position.y, body.angle
