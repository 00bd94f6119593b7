"""The models that benches/torch_training.py trains, and their batches: GPT-2, ResNet-50 and a mixture of experts."""
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # The attention is not fused: this is deterministic on every GPU, and its many large blocks make the
        # allocator's work depend on the sequence length.
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        mixed = torch.softmax(scores + mask[:length, :length], dim=-1) @ v
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.norm2(x))

    def feed_forward(self, x):
        return self.shrink(functional.gelu(self.grow(x), approximate="tanh"))


@torch.compiler.disable
def rows_of_experts(probabilities):
    """Returns the rows of each expert: those that have it among their two best. The host waits for the sizes."""
    best = probabilities.detach().topk(2, dim=-1).indices
    return [(best == expert).any(-1).nonzero().squeeze(1) for expert in range(probabilities.shape[1])]


class ExpertsBlock(Block):
    """A block whose feed-forward layer is a mixture of experts. The number of rows of an expert depends on the data."""

    def __init__(self, width, heads, experts):
        super().__init__(width, heads)
        del self.grow, self.shrink
        self.router = nn.Linear(width, experts)
        self.grow = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(experts))
        self.shrink = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(experts))

    def feed_forward(self, x):
        rows = x.flatten(0, 1)
        probabilities = torch.softmax(self.router(rows).float(), dim=-1)
        return self.mix(rows, probabilities, rows_of_experts(probabilities)).view(x.shape)

    def mix(self, x, probabilities, rows):
        result = torch.zeros_like(x, dtype=torch.float32)
        for expert, (chosen, grow, shrink) in enumerate(zip(rows, self.grow, self.shrink)):
            hidden = shrink(functional.gelu(grow(x.index_select(0, chosen)), approximate="tanh"))
            weight = probabilities[:, expert].index_select(0, chosen).unsqueeze(1)
            result = result.index_add(0, chosen, hidden.float() * weight)
        return result


class Gpt2(nn.Module):
    def __init__(self, vocabulary=50257, context=1024, width=768, layers=12, heads=12, experts=0):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(ExpertsBlock(width, heads, experts) if experts else Block(width, heads)
                                    for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1), persistent=False)
        self.register_buffer("order", torch.arange(context), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(self.order[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, self.mask)
        return functional.linear(self.norm(x), self.tokens.weight)

    def loss(self, tokens, targets):
        return functional.cross_entropy(self(tokens).flatten(0, 1).float(), targets.flatten())


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside))
        self.skip = nn.Identity() if stride == 1 and inside == outside else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return functional.relu(self.body(x) + self.skip(x))


class Resnet(nn.Module):
    def __init__(self, depths=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                  nn.MaxPool2d(3, 2, 1)]
        inside = width
        for stage, depth in enumerate(depths):
            for block in range(depth):
                layers.append(Bottleneck(inside, width << stage, 2 if stage and not block else 1))
                inside = 4 * (width << stage)
        self.body, self.head = nn.Sequential(*layers), nn.Linear(inside, classes)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))

    def loss(self, images, targets):
        return functional.cross_entropy(self(images).float(), targets)


class Text:
    """GPT-2 and its batches of tokens."""

    bfloat16 = True

    def __init__(self, tiny):
        torch.manual_seed(1)
        self.vocabulary = 97 if tiny else 50257
        self.model = Gpt2(self.vocabulary, 64, 32, 2, 4) if tiny else Gpt2()
        self.prepare(tiny)

    def prepare(self, tiny):
        self.data = torch.randint(self.vocabulary, (1 << 12 if tiny else 1 << 20,))
        # The graphs and compiled runs use graph_shapes, evaluations use other_shape.
        self.graph_shapes = ((2, 16), (2, 32)) if tiny else ((4, 384), (4, 640))
        self.large_shapes = ((4, 48), (4, 64)) if tiny else ((16, 768), (16, 1024))
        self.other_shape = (3, 24) if tiny else (3, 500)
        self.lengths = (8, 64) if tiny else (160, 1024)
        self.batch = 2 if tiny else 8
        # Of the -oom runs: a batch that fits in the limit, one that does not, and the limit of memory held in bytes.
        self.fits, self.too_large = ((2, 16), (16, 64)) if tiny else ((2, 256), (64, 1024))
        self.limit = 12 << 30

    def optimizer(self, capturable):
        return torch.optim.AdamW(self.model.parameters(), lr=3e-4, capturable=capturable)

    def shape(self, chance):
        return self.batch, chance.randint(*self.lengths) // 8 * 8

    small_shape = shape

    def on_host(self, chance, shape):
        batch, length = shape
        start = chance.randrange(len(self.data) - batch * (length + 1))
        return (self.data[start : start + batch * (length + 1)].view(batch, length + 1),)

    def on_device(self, rows):
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


class Experts(Text):
    """A transformer of 124 million parameters with 8 experts in each layer, 2 for each token, and batches of tokens."""

    def __init__(self, tiny):
        torch.manual_seed(3)
        self.vocabulary = 97 if tiny else 32000
        arguments = (self.vocabulary, 64, 32, 2, 4, 4) if tiny else (self.vocabulary, 1024, 512, 6, 8, 8)
        self.model = Gpt2(*arguments)
        self.prepare(tiny)
        # One shape, so that only the experts have dynamic sizes when this model is compiled.
        self.graph_shapes = self.graph_shapes[:1]


class Images:
    """ResNet-50 and its batches of bytes, which the device converts to floating-point numbers."""

    bfloat16 = False

    def __init__(self, tiny):
        torch.manual_seed(2)
        self.classes = 10 if tiny else 1000
        self.model = Resnet((1, 1, 1, 1), 8, self.classes) if tiny else Resnet()
        self.data = torch.randint(256, (1 << 18 if tiny else 1 << 26,), dtype=torch.uint8)
        self.labels = torch.randint(self.classes, (1 << 12,))
        self.graph_shapes = ((4, 32), (4, 48)) if tiny else ((32, 160), (32, 224))
        self.large_shapes = ((8, 40), (8, 48)) if tiny else ((256, 192), (256, 224))
        self.other_shape = (3, 40) if tiny else (24, 192)
        self.sizes = (32, 48) if tiny else (128, 160, 192, 224, 256)
        self.batches = (4, 8) if tiny else (32, 64)
        self.fits, self.too_large = ((2, 32), (16, 48)) if tiny else ((16, 160), (160, 256))
        self.limit = 4 << 30

    def optimizer(self, _capturable):
        return torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def shape(self, chance):
        return chance.randint(*self.batches), chance.choice(self.sizes)

    def small_shape(self, chance):
        """Returns a shape for workers of a DataLoader: some machines have little shared memory for batches."""
        return chance.randint(*self.batches) // 2, chance.choice(self.sizes[:-1])

    def on_host(self, chance, shape):
        batch, size = shape
        count = batch * 3 * size * size
        start, label = chance.randrange(len(self.data) - count), chance.randrange(len(self.labels) - batch)
        return self.data[start : start + count].view(batch, 3, size, size), self.labels[label : label + batch]

    def on_device(self, pixels, labels):
        return (pixels.float() - 127.5) / 58.0, labels.clone()

    def pin(self):
        self.labels = self.labels.pin_memory()


MODELS = {"gpt2": Text, "resnet50": Images, "moe": Experts}
