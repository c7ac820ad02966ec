"""A level as a pymunk space, set up to behave like the Box2D 2.3 inside Unity that the official evaluator uses.

Units are metres, seconds, kilograms and radians. Each constant names the setting of the Science Birds Evaluator
(Unity 2019.4) that it stands for; where the engines differ, the comment says how the one is expressed in the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pymunk

from pcgeval.core.params import PhysicsParams
from pcgeval.evaluator.shapes import COLLIDERS
from pcgeval.levels.blocks import Block

GRAVITY = 9.81 * 0.5  # m/s2 downwards: Unity's default times the blocks' gravity scale
DENSITY = 1.0  # kg/m2, wood
LINEAR_DRAG = 1.0  # 1/s: a velocity is divided by 1 + step * drag in each step
ANGULAR_DRAG = 0.05  # 1/s
BLOCK_FRICTION = 4.0  # wood; Box2D mixes a pair as sqrt(f1 * f2), pymunk multiplies
GROUND_FRICTION = 0.4  # no material: Unity's default
SKIN = 0.01  # Box2D's polygon radius: colliders meet this far outside their outline
FLAT_SKIN = 0.005  # the part of a block's skin that is added to its flat sides, see `_body`
SLOP = 0.005  # Box2D's linear slop: overlap of skins that is left alone
BAUMGARTE = 0.2  # share of the remaining overlap that Box2D removes in one step
SLEEP_SECONDS = 0.5
SLEEP_SPEED = 0.01  # m/s
SLEEP_TURN = math.radians(2)  # per second
GROUND_TOP = -3.5  # y of the ground's surface
GROUND_HALF_WIDTH = 10_000.0  # wider than any block can travel from the farthest place a level may name


@dataclass
class World:
    """A level in motion; `bodies` and `life` are in the order of the level's blocks."""

    space: pymunk.Space
    bodies: list[pymunk.Body]
    life: list[float]  # what contacts have left of each block, in m/s of relative speed; 0 or less is dead
    living: list[pymunk.Body]
    dying: list[pymunk.Body] = field(default_factory=list)  # killed by the step in progress

    @property
    def asleep(self) -> bool:
        """Whether every living block sleeps, after which nothing can change any more."""
        return all(body.is_sleeping for body in self.living)


def build_world(blocks: Sequence[Block], physics: PhysicsParams) -> World:
    """Put the ground and the blocks, in this order, into a new space.

    The order decides the order in which contacts are solved, and so the outcome: the same order, the same bits.
    """
    space = pymunk.Space()
    drag = 1 + physics.step * LINEAR_DRAG
    space.gravity = (0.0, -GRAVITY / drag)  # Box2D drags what gravity added in the same step, pymunk does not
    space.damping = drag ** (-1 / physics.step)
    space.iterations = physics.iterations
    space.collision_slop = SLOP
    space.collision_bias = (1 - BAUMGARTE) ** (1 / physics.step)
    space.sleep_time_threshold = SLEEP_SECONDS
    space.idle_speed_threshold = SLEEP_SPEED
    space.add(_ground(space))
    bodies = [_body(block) for block in blocks]
    for body in bodies:
        space.add(body, *body.shapes)
    world = World(space, bodies, [physics.life] * len(bodies), list(bodies))
    _watch_contacts(world)
    return world


def advance(world: World, step: float) -> None:
    """Let one step of time pass (in seconds); blocks that died in it vanish at its end."""
    world.space.step(step)
    for body in world.dying:
        world.space.remove(body, *body.shapes)
        world.living.remove(body)
    world.dying.clear()
    _give_back_turning(world.living, (1 + step * LINEAR_DRAG) / (1 + step * ANGULAR_DRAG))


def _give_back_turning(bodies: Sequence[pymunk.Body], factor: float) -> None:
    """Undo what pymunk, which has one drag for both motions, took too much from angular velocities.

    Slow turning is left alone: to set a velocity is to wake a body, and Box2D lets bodies sleep below this speed.
    """
    for body in bodies:
        turning = body.angular_velocity
        if abs(turning) > SLEEP_TURN and not body.is_sleeping:
            body.angular_velocity = turning * factor


def _ground(space: pymunk.Space) -> pymunk.Shape:
    ends = (-GROUND_HALF_WIDTH, GROUND_TOP), (GROUND_HALF_WIDTH, GROUND_TOP)
    ground = pymunk.Segment(space.static_body, *ends, radius=SKIN)
    ground.friction = math.sqrt(BLOCK_FRICTION * GROUND_FRICTION) / math.sqrt(BLOCK_FRICTION)
    return ground


def _body(block: Block) -> pymunk.Body:
    """Return a block's body and, attached to it, its collider.

    Box2D lets a contact reach two skins past the end of one of the two touching sides, of the body that was created
    first; in pymunk it ends with the flat part of the shorter side. Half the skin made flat lies between.
    """
    size = COLLIDERS[block.type]
    mass = DENSITY * size.width * size.height
    body = pymunk.Body(mass, pymunk.moment_for_box(mass, (size.width, size.height)))
    body.position = (block.x, block.y)
    body.angle = math.radians(block.rotation)
    flat_size = size.width + 2 * FLAT_SKIN, size.height + 2 * FLAT_SKIN
    shape = pymunk.Poly.create_box(body, flat_size, radius=SKIN - FLAT_SKIN)
    shape.friction = math.sqrt(BLOCK_FRICTION)
    return body


def _watch_contacts(world: World) -> None:
    """Make both bodies of a new contact lose as much life as their relative speed."""
    index_of = {body: index for index, body in enumerate(world.bodies)}
    life, dying = world.life, world.dying

    def begin(arbiter: pymunk.Arbiter, _space: pymunk.Space, _data: object) -> None:
        first, second = arbiter.bodies
        damage = abs(first.velocity - second.velocity)
        for body in (first, second):
            index = index_of.get(body)
            if index is not None and life[index] > 0:
                life[index] -= damage
                if life[index] <= 0:
                    dying.append(body)

    world.space.on_collision(begin=begin)
