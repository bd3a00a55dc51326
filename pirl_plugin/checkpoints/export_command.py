"""``pirl-plugin export``: write the trunk in a checkpoint for another program."""

from __future__ import annotations

from pirl_plugin.checkpoints import FORMATS
from pirl_plugin.system import arguments
from pirl_plugin.system.files import locked_file


def main(argv: list[str]) -> int:
    """Run ``pirl-plugin export --checkpoint FILE --to FORMAT --out OUT``."""
    parser = arguments.command_parser(
        "export",
        "Write the trunk in a checkpoint for another program, and print how to load it there.",
        "--checkpoint IN --to torchvision --out OUT.pth",
        arguments.NETWORK,
        weights=arguments.CHECKPOINT,
    )
    add = parser.add_argument
    add("--to", choices=FORMATS, required=True, help="output format")
    add("--out", type=arguments.OutputFile(), required=True, help="output file; for timm, a folder")
    add("--features-only", action="store_true", help="leave out the classifier")
    options = parser.parse_args(argv)
    from pirl_plugin.checkpoints.classifier import read_classifier
    from pirl_plugin.checkpoints.export import export_checkpoint, loading_lines

    with locked_file(options.out, "--out"):
        trunk = export_checkpoint(
            options.checkpoint,
            options.out,
            options.to,
            trunk=options.trunk,
            timm=options.timm,
            timm_options=dict(options.timm_option),
            features_only=options.features_only,
        )
    print(f"{options.out}: {trunk.network_config.name}, from {options.checkpoint}")
    print(f"input: {trunk.network_config}")
    classifier = None if options.features_only else read_classifier(options.checkpoint)
    classes = [] if classifier is None else classifier.classes
    if classes:
        print(f"classes: {', '.join(classes)}")
    print(f"To load it:\n\n{loading_lines(trunk, options.to, options.out, len(classes))}")
    return 0
